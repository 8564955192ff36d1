-- ARGV  resource or '', what ('messages', 'all' messages, the 'thread' itself, or 'undo'), for undo `updated_at` as the
--       write that is undone has left it, message ids
-- Undo takes away a write that met the deletion of its resource: the thread, when nobody has changed it since (all that is
-- in it belongs to what is deleted), else the messages.
-- Reply number of messages deleted (-1 when there is no thread), of vectors, of working memories, of their revisions;
--       WMOWNER. All go in the same step.
local refusal = stranger(ARGV[1])
if refusal then return refusal end
if redis.call('EXISTS', KEYS[1]) == 0 then return {-1, 0, 0, 0} end
local what, first = ARGV[2], 3
if what == 'undo' then
  what = redis.call('HGET', KEYS[1], 'updated_at') == ARGV[3] and 'thread' or 'messages'
  first = 4
end
local deleted, vectors = 0, 0
local function drop(id, seq, value)
  vectors = vectors + drop_vectors(seq, value)
  redis.call('ZREM', KEYS[2], id)
  redis.call('HDEL', KEYS[3], id)
  deleted = deleted + 1
end
if what == 'messages' then
  for place = first, #ARGV do
    local seq = redis.call('ZSCORE', KEYS[2], ARGV[place])
    if seq then drop(ARGV[place], seq, redis.call('HGET', KEYS[3], ARGV[place])) end
  end
else
  each_message(drop)
end
if what == 'thread' then
  local revisions = redis.call('XLEN', KEYS[6])
  local memories = redis.call('DEL', KEYS[5])
  redis.call('DEL', KEYS[1], KEYS[6])
  return {deleted, vectors, memories, revisions}
end
if deleted > 0 then
  redis.call('HINCRBY', KEYS[1], 'count', -deleted)
  redis.call('HSET', KEYS[1], 'updated_at', whole(now()))
  keep()
end
return {deleted, vectors, 0, 0}
