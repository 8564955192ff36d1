-- Changes the title and metadata of a thread.
-- ARGV  owner or '', number of fields to delete, those fields, then field, value, ... to set
-- Reply HGETALL of the thread, empty if it does not exist; WMOWNER, WMCOVERED.
local refusal = write_refusal(ARGV[1])
if refusal then return refusal end
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
check_key_types()
local deleted = tonumber(ARGV[2])
call_in_batches('HSET', KEYS[1], 3 + deleted, #ARGV) -- first: a full server then refuses all of it
call_in_batches('HDEL', KEYS[1], 3, 2 + deleted)
redis.call('HSET', KEYS[1], 'updated_at', as_integer(now()))
refresh_labels()
renew_ttl()
return redis.call('HGETALL', KEYS[1])
