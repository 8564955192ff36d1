-- ARGV  resource or '', what ('messages', 'all' messages, or the 'thread' itself), message ids
-- Reply number of messages deleted, -1 when there is no thread; WMOWNER. Vectors go in the same step.
local refusal = stranger(ARGV[1])
if refusal then return refusal end
if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
local deleted = 0
local function drop(id, seq, value)
  local _, _, size, chunks = string.match(value, HEADER)
  drop_vectors(seq, size, chunks)
  redis.call('ZREM', KEYS[2], id)
  redis.call('HDEL', KEYS[3], id)
  deleted = deleted + 1
end
if ARGV[2] == 'messages' then
  for place = 3, #ARGV do
    local seq = redis.call('ZSCORE', KEYS[2], ARGV[place])
    if seq then drop(ARGV[place], seq, redis.call('HGET', KEYS[3], ARGV[place])) end
  end
else
  each_message(drop)
end
if ARGV[2] == 'thread' then
  redis.call('DEL', KEYS[1], KEYS[5], KEYS[6])
elseif deleted > 0 then
  redis.call('HINCRBY', KEYS[1], 'count', -deleted)
  redis.call('HSET', KEYS[1], 'updated_at', whole(now()))
end
return deleted
