-- Supersedes all messages after one.
-- ARGV  resource or '', id of the message
-- Reply number of messages that were superseded, what renew_ttl returns, 1 if the log of the resource is to be told; WMOWNER,
--       WMNOTHREAD, WMNOMESSAGE after.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
if redis.call('EXISTS', KEYS[1]) == 0 then return redis.error_reply('WMNOTHREAD') end
check_key_types()
local seq = redis.call('ZSCORE', KEYS[2], ARGV[2])
if not seq then return redis.error_reply('WMNOMESSAGE after') end
local count = supersede_range('(' .. seq, '+inf')
if count == 0 then return {0, 0, 0} end
redis.call('HINCRBY', KEYS[1], 'count', -count)
redis.call('HDEL', KEYS[1], 'pending')
refresh_hidden()
redis.call('HSET', KEYS[1], 'updated_at', as_integer(now()))
return {count, renew_ttl(), redis.call('HEXISTS', KEYS[10], 'unpublished')}
