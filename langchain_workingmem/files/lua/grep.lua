-- Finds the lines that hold a text, in a slice of the files.
-- ARGV  text; path of a file that is searched first, or ''; the lowest and the highest member of `paths`; lines at most
-- Reply {next lowest member, or ''; path, number, line, ...}: text files only, the last file of a slice as a whole
local wanted, path, low, high, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local began, found, bytes = os.clock(), {''}, 0
local function search(path, text)
  local from, line, counted = 1, 1, 1
  while true do
    local first = string.find(text, wanted, from, true)
    if not first then return end
    line = line + select(2, string.gsub(string.sub(text, counted, first - 1), '\n', '\n'))
    local starts, ends = first, string.find(text, '\n', first, true) or #text + 1
    while starts > 1 and string.byte(text, starts - 1) ~= 10 do starts = starts - 1 end
    local hit = string.sub(text, starts, ends - 1)
    found[#found + 1], found[#found + 2], found[#found + 3] = path, line, hit
    bytes = bytes + #hit
    from, counted, line = ends + 1, ends + 1, line + 1
    if from > #text then return end
  end
end
local first = path ~= '' and note_of(path)
if is_live(first or nil) and first.kind == 't' then search(path, redis.call('HGET', texts_key, path)) end
while true do
  local members = redis.call('ZRANGE', paths_key, low, high, 'BYLEX', 'LIMIT', 0, 100)
  for _, member in ipairs(members) do
    local ends = string.find(member, '\0', 1, true)
    local path = string.sub(member, 1, ends - 1)
    if parse(string.sub(member, ends + 1)).kind == 't' then
      local text = redis.call('HGET', texts_key, path) or ''
      bytes = bytes + #text / 8
      search(path, text)
    end
    if #found > 3 * most or bytes > 1048576 or os.clock() - began > 0.01 then
      found[1] = '(' .. member
      return found
    end
  end
  if #members < 100 then return found end
  low = '(' .. members[#members]
end
