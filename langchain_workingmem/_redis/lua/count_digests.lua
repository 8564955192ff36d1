-- Tells how the newest messages of a thread are marked; reads only.
-- ARGV  roles (,human,ai,), most messages to look at
-- Reply mark (see the prelude; empty: no vectors), number of messages of those roles with that mark, next mark, ...
local ids = redis.call('ZRANGE', KEYS[2], '+inf', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, ARGV[2])
local counts = {}
for _, id in ipairs(ids) do
  local value = redis.call('HGET', KEYS[3], id)
  local _, mark, _, _, _, _, rest = string.match(value, HEADER)
  local role = role_at(value, rest)
  if string.find(ARGV[1], ',' .. role .. ',', 1, true) then
    counts[mark] = (counts[mark] or 0) + 1
  end
end
local reply = {}
for mark, count in pairs(counts) do
  reply[#reply + 1] = mark
  reply[#reply + 1] = count
end
return reply
