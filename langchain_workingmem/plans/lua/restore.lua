-- Writes a copy of a thread, batch by batch, vectors and times included.
-- ARGV  resource, thread as a tag, number of thread fields and values, those (only in the first batch, else 0), then
--       for each message id, value, and for each chunk that its header counts: number of fields and values, those
-- Reply HGETALL of the thread; WMEXISTS (first batch), WMOWNER.
local resource, tag, width = ARGV[1], ARGV[2], tonumber(ARGV[3])
local place = 4 + width
-- the ids of a copy are new: one that is there means that this batch was written before, and its reply was lost
if ARGV[place] and redis.call('HEXISTS', KEYS[3], ARGV[place]) == 1 then return redis.call('HGETALL', KEYS[1]) end
if width > 0 then
  if redis.call('EXISTS', KEYS[1]) == 1 then return redis.error_reply('WMEXISTS the thread exists') end
  local at = whole(now())
  redis.call('HSET', KEYS[1], 'resource', resource, 'created_at', at, 'updated_at', at, 'count', 0, 'next_seq', 0)
  with_arguments('HSET', KEYS[1], 4, 3 + width)
  refresh_labels()
end
local refusal = stranger(resource)
if refusal then return refusal end
local seq = tonumber(redis.call('HGET', KEYS[1], 'next_seq'))
local count, last_at = 0, 0
while place <= #ARGV do
  local id, value = ARGV[place], ARGV[place + 1]
  local at, _, tokens, chunks = string.match(value, HEADER)
  redis.call('ZADD', KEYS[2], whole(seq), id)
  redis.call('HSET', KEYS[3], id, value)
  place = place + 2
  for chunk = 0, chunks - 1 do
    local fields = tonumber(ARGV[place])
    local key = vector_key(whole(seq), chunk, tokens)
    if fields > 0 then -- none: somebody evicted the vector
      redis.call('HSET', key, unpack(ARGV, place + 1, place + fields))
      redis.call('HSET', key, 'resource', resource, 'thread', tag, 'message', id)
    end
    place = place + 1 + fields
  end
  seq, count, last_at = seq + 1, count + 1, math.max(last_at, tonumber(at))
end
if count > 0 then
  redis.call('HSET', KEYS[1], 'next_seq', whole(seq), 'last_at', whole(last_at))
  redis.call('HINCRBY', KEYS[1], 'count', count)
end
return redis.call('HGETALL', KEYS[1])
