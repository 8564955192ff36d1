-- Reads an item of a store.
-- KEYS  item (HASH), prefix of its further vectors (HASHes)
-- ARGV  1 to renew the TTL, else 0
-- Reply HMGET of the fields below, which items/state.py reads
local item = redis.call('HMGET', KEYS[1], 'namespace', 'key', 'value', 'created_at', 'updated_at', 'ttl')
local ttl = item[6]
if ARGV[1] == '1' and ttl then
  local clock = redis.call('TIME')
  local expires_at = string.format('%.0f', math.min(math.floor(clock[1] * 1000 + clock[2] / 1000) + ttl, 9223372036854)) -- in ns: 64 bits
  local function refresh(key)
    if redis.call('EXISTS', key) == 0 then return end -- Redis may have evicted the vector
    redis.call('HSET', key, 'expires_at', expires_at)
    redis.call('PEXPIREAT', key, expires_at)
  end
  refresh(KEYS[1])
  for number = 1, redis.call('HGET', KEYS[1], 'vectors') - 1 do
    refresh(KEYS[2] .. number)
  end
end
return item
