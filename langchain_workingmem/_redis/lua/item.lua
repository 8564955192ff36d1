-- Writes, reads or deletes an item of a store. It holds its first vector: most items are one document of the index.
-- KEYS  1 item (HASH)  2 prefix of its further vectors (HASHes)
-- ARGV  1 'put', 'get', 'refresh' (reads it, and renews its TTL) or 'delete'
--       2 to put: ttl (ms) or ''  3 namespace  4 key  5 value  6 within  7 labels  8 and following: vectors
-- Reply of 'get' and 'refresh': namespace, key, value, created_at, updated_at, ttl
local what, ttl = ARGV[1], ARGV[2]
local item = redis.call('HMGET', KEYS[1], 'namespace', 'key', 'value', 'created_at', 'updated_at', 'ttl', 'vectors')
local created_at, updated_at, old_vectors = item[4], item[5], tonumber(item[7] or 0)
if what == 'get' or (what == 'refresh' and not item[6]) then return item end
local vectors = what == 'put' and #ARGV - 7 or what == 'refresh' and old_vectors or 0

for number = math.max(vectors, 1), old_vectors - 1 do redis.call('DEL', KEYS[2] .. number) end
if what == 'delete' then return redis.call('DEL', KEYS[1]) end

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
if what == 'refresh' then ttl = item[6] end
local expires_at = ttl ~= '' and string.format('%.0f', math.min(math.floor(now / 1000) + ttl, 9223372036854)) -- 2^63 ns

-- Writes fields of the item or of a further vector; it expires, or never.
local function set(key, ...)
  if expires_at then
    redis.call('HSET', key, 'expires_at', expires_at, ...)
    redis.call('PEXPIREAT', key, expires_at)
  else
    redis.call('HSET', key, ...)
    if created_at then redis.call('HDEL', key, 'expires_at', 'ttl') redis.call('PERSIST', key) end
  end
end

if what == 'refresh' then
  set(KEYS[1])
  for number = 1, vectors - 1 do if redis.call('EXISTS', KEYS[2] .. number) == 1 then set(KEYS[2] .. number) end end
  return item
end
local at = string.format('%.0f', math.max(now, (updated_at or 0) + 1)) -- rises even if the clock is set back
local fields = {'namespace', ARGV[3], 'key', ARGV[4], 'value', ARGV[5], 'within', ARGV[6], 'labels', ARGV[7],
  'vectors', vectors, 'created_at', created_at or at, 'updated_at', at}
for name, value in pairs({vector = ARGV[8], ttl = ttl ~= '' and ttl or nil}) do
  fields[#fields + 1], fields[#fields + 2] = name, value
end
set(KEYS[1], unpack(fields))
if created_at and vectors == 0 then redis.call('HDEL', KEYS[1], 'vector') end
for n = 1, vectors - 1 do set(KEYS[2] .. n, 'within', ARGV[6], 'labels', ARGV[7], 'vector', ARGV[8 + n]) end
