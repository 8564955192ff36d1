-- Lists a directory.
-- ARGV  its path with a slash at its end
-- Reply members of `paths` as they are, and of each directory in it the path with a slash at its end, in order
local prefix = ARGV[1]
local found, from = {}, '[' .. prefix
local stop = '(' .. string.sub(prefix, 1, -2) .. '0'
while true do
  local members = redis.call('ZRANGE', paths_key, from, stop, 'BYLEX', 'LIMIT', 0, 1000)
  if #members == 0 then return found end
  local skip
  for _, member in ipairs(members) do
    if not skip or member >= skip then
      local slash = string.find(member, '/', #prefix + 1, true)
      local ends = slash and string.find(member, '\0', #prefix + 1, true)
      if slash and slash < ends then
        found[#found + 1] = string.sub(member, 1, slash)
        skip = string.sub(member, 1, slash - 1) .. '0'
      else
        found[#found + 1] = member
      end
    end
  end
  local last = members[#members]
  from = skip and skip > last and '[' .. skip or '(' .. last
end
