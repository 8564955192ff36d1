-- Finds the lines that hold a text, in a slice of the text files.
-- ARGV  text; lines at most; the lowest and the highest member of `paths`; path of a file that is searched first, or ''; its
--       revision, or '': the present one; byte and number of the line where it is searched from
-- Reply {next lowest member, or '': that was all; path, revision, byte and number of a line, where a file is to be continued, or '';
--       path, number, line, ...}
local wanted, most, low, high, path, revision = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local began, steps, bytes, found = os.clock(), 0, 0, {'', '', '', '', ''}

local function is_over()
  return #found >= 3 * most + 5 or bytes > 1048576 or os.clock() - began > 0.008
end

-- Searches a text from the beginning of a line. Returns false if the slice is over before the text is.
local function search(path, revision, text, at, line)
  while true do
    local first = string.find(text, wanted, at, true)
    if not first then return true end
    local ends
    while true do
      steps = steps + 1
      if steps % 500 == 0 and is_over() then break end
      ends = string.find(text, '\n', at, true) or #text + 1
      if ends >= first then break end
      at, line = ends + 1, line + 1
    end
    if not ends or ends < first or #found >= 3 * most + 5 or bytes > 1048576 then
      found[2], found[3], found[4], found[5] = path, as_integer(revision), at, line
      return false
    end
    local hit = string.sub(text, at, ends - 1)
    found[#found + 1], found[#found + 2], found[#found + 3] = path, line, hit
    bytes = bytes + #hit
    at, line = ends + 1, line + 1
    if at > #text then return true end
  end
end

local file = path ~= '' and note_of(path)
if file then
  local is_present = revision == '' or tonumber(revision) == file.revision
  local text = (file.kind == 't' or not is_present) and redis.call('HGET', texts_key, is_present and path or path .. '\0' .. revision)
  if text and not search(path, is_present and file.revision or revision, text, tonumber(ARGV[7]), tonumber(ARGV[8])) then
    found[1] = low
    return found
  end
end
while true do
  local members = redis.call('ZRANGE', paths_key, low, high, 'BYLEX', 'LIMIT', 0, 100)
  for _, member in ipairs(members) do
    local ends = string.find(member, '\0', 1, true)
    local revision, kind = string.match(member, '^(%d+) %d+ %d+ %d+ (%a)', ends + 1)
    local path, is_done = string.sub(member, 1, ends - 1), true
    low = '[' .. path .. '\1' -- behind all notes that the file may get meanwhile
    if kind == 't' then
      local text = redis.call('HGET', texts_key, path) or ''
      bytes = bytes + #text / 8
      is_done = search(path, revision, text, 1, 1)
    end
    if not is_done or is_over() then
      found[1] = low
      return found
    end
  end
  if #members < 100 then return found end
end
