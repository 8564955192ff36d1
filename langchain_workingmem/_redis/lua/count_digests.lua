-- Counts which embedding settings made the vectors of a thread's newest messages; reads only.
-- ARGV  roles (,human,ai,), number of messages at most
-- Reply digest of the settings (empty: no vectors), number of messages of those roles with it, next digest, ...
local counts = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[2], '+inf', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, ARGV[2])) do
  local value = redis.call('HGET', KEYS[3], id)
  local _, digest, _, _, _, _, rest = string.match(value, HEADER)
  if string.find(ARGV[1], ',' .. role_at(value, rest) .. ',', 1, true) then
    counts[digest] = (counts[digest] or 0) + 1
  end
end
local reply = {}
for digest, count in pairs(counts) do
  reply[#reply + 1] = digest
  reply[#reply + 1] = count
end
return reply
