#!lua flags=allow-oom
-- Supersedes all messages after one.
-- ARGV  user or '', id of the message
-- Reply number of messages that were superseded, what renew_ttl returns; WMOWNER, WMCOVERED, WMKEPT, WMNOTHREAD, WMNOMESSAGE after.
local refusal = write_refusal(ARGV[1])
if refusal then return refusal end
if redis.call('EXISTS', KEYS[1]) == 0 then return redis.error_reply('WMNOTHREAD') end
check_key_types()
local seq = redis.call('ZSCORE', KEYS[2], ARGV[2])
if not seq then return redis.error_reply('WMNOMESSAGE after') end
refusal = hooks.keeps and hooks.keeps('move', {})
if refusal then return refusal end
local count = supersede_range('(' .. seq, '+inf')
if count == 0 then return {0, remaining_work()} end -- a call whose reply was lost may have left some
redis.call('HINCRBY', KEYS[1], 'count', -count)
tell_change({})
redis.call('HSET', KEYS[1], 'updated_at', as_integer(now()))
return {count, renew_ttl()}
