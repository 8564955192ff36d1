-- Leaves behind what stands behind a message.
-- ARGV  resource or '', id of the message
-- Reply number of messages that were superseded; WMOWNER, WMNOTHREAD, WMNOMESSAGE after.
local refusal = stranger(ARGV[1])
if refusal then return refusal end
if redis.call('EXISTS', KEYS[1]) == 0 then return redis.error_reply('WMNOTHREAD') end
local seq = redis.call('ZSCORE', KEYS[2], ARGV[2])
if not seq then return redis.error_reply('WMNOMESSAGE after') end
local ids = redis.call('ZRANGE', KEYS[2], '(' .. seq, '+inf', 'BYSCORE')
for _, id in ipairs(ids) do supersede(id) end
if #ids > 0 then
  redis.call('HINCRBY', KEYS[1], 'count', -#ids)
  redis.call('HSET', KEYS[1], 'updated_at', whole(now()))
  keep()
end
return #ids
