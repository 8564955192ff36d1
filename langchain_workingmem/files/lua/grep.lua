-- Finds the lines that hold a text in text files, one after the other, until there are enough lines or it takes long.
-- ARGV  text; lines at most; paths
-- Reply {number of paths that were searched; path, number of the line, line, ...}
local wanted, most = ARGV[1], tonumber(ARGV[2])
local began, found, searched = os.clock(), {0}, 0
for at = 3, #ARGV do
  local path = ARGV[at]
  local file = note_of(path)
  local text = is_live(file) and file.kind == 't' and redis.call('HGET', texts_key, path) or ''
  local from, line = 1, 1 -- the beginning of a line, and its number
  while #found < 3 * most + 1 do
    local first = string.find(text, wanted, from, true)
    if not first then break end
    local before = string.sub(text, from, first - 1)
    line = line + #(string.gsub(before, '[^\n]+', ''))
    local begins = string.match(before, '^.*\n()') or 1
    local ends = string.find(text, '\n', first, true) or #text + 1
    found[#found + 1], found[#found + 2], found[#found + 3] = path, line, string.sub(text, from + begins - 1, ends - 1)
    from, line = ends + 1, line + 1
    if from > #text then break end
  end
  found[1], searched = at - 2, searched + #text
  if #found >= 3 * most + 1 or searched > 8388608 or os.clock() - began > 0.008 then break end
end
return found
