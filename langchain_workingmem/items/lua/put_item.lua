-- Writes or replaces an item of a store.
-- KEYS  item (HASH), prefix of its further vectors (HASHes)
-- ARGV  namespace, key, value, within, labels, ttl (ms) or '', vectors
-- Reply 1
-- The item holds its first vector, so that most items are one document of the index.
local old = redis.call('HMGET', KEYS[1], 'created_at', 'updated_at', 'vectors')
local vectors = #ARGV - 6
for number = vectors, (old[3] or 0) - 1 do
  redis.call('DEL', KEYS[2] .. number)
end
local clock = redis.call('TIME')
local at = clock[1] * 1000000 + clock[2]
local updated_at = string.format('%.0f', math.max(at, (old[2] or 0) + 1)) -- rises even if the clock is set back
local item = {
  'namespace', ARGV[1], 'key', ARGV[2], 'value', ARGV[3], 'within', ARGV[4], 'labels', ARGV[5], 'vectors', vectors,
  'created_at', old[1] or updated_at, 'updated_at', updated_at,
}
local lost = {}
local expires_at = ARGV[6] ~= '' and string.format('%.0f', math.min(math.floor(at / 1000) + ARGV[6], 9223372036854)) -- in ns: 64 bits

local function set(fields, name, value)
  if value then
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  else
    lost[#lost + 1] = name
  end
end
set(item, 'ttl', expires_at and ARGV[6])
set(item, 'expires_at', expires_at)
set(item, 'vector', ARGV[7])
redis.call('HSET', KEYS[1], unpack(item))
if old[1] and #lost > 0 then redis.call('HDEL', KEYS[1], unpack(lost)) end

local function expire(key)
  if expires_at then redis.call('PEXPIREAT', key, expires_at) elseif old[1] then redis.call('PERSIST', key) end
end
expire(KEYS[1])
for number = 1, vectors - 1 do
  local key = KEYS[2] .. number
  redis.call('HSET', key, 'within', ARGV[4], 'labels', ARGV[5], 'vector', ARGV[7 + number])
  if expires_at then redis.call('HSET', key, 'expires_at', expires_at) else redis.call('HDEL', key, 'expires_at') end
  expire(key)
end
return 1
