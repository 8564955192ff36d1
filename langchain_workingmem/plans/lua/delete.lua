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
local left = 0 -- of those that were deleted, the superseded ones: `count` has no part of them
local function drop(id, seq, value)
  local _, _, _, _, said = string.match(value, HEADER)
  vectors = vectors + drop_vectors(seq, value)
  unlist_said(seq, said)
  if string.sub(said, -1) == '!' then redis.call('HINCRBY', KEYS[1], 'refused', -1) end
  left = left + redis.call('ZREM', KEYS[7], id)
  redis.call('ZREM', KEYS[2], id)
  redis.call('HDEL', KEYS[3], id)
  for _, alias in ipairs(redis.call('ZRANGE', KEYS[8], seq, seq, 'BYSCORE')) do redis.call('ZREM', KEYS[8], alias) end
  deleted = deleted + 1
end
if what == 'messages' then
  for place = first, #ARGV do
    local id = ARGV[place]
    local seq = redis.call('ZSCORE', KEYS[2], id) or redis.call('ZSCORE', KEYS[7], id)
    if seq then
      drop(id, seq, redis.call('HGET', KEYS[3], id))
      -- the older versions of its words
      for _, version in ipairs(redis.call('ZRANGE', KEYS[7], '(' .. whole(seq - 1), '(' .. seq, 'BYSCORE')) do
        redis.call('ZREM', KEYS[7], version)
        redis.call('HDEL', KEYS[3], version)
      end
    end
  end
else
  each_message(drop)
  each_message(drop, KEYS[7])
end
if what == 'thread' then
  local revisions = redis.call('XLEN', KEYS[10])
  local memories = redis.call('DEL', KEYS[9])
  redis.call('DEL', KEYS[1], KEYS[10])
  return {deleted, vectors, memories, revisions}
end
if deleted > 0 then
  redis.call('HINCRBY', KEYS[1], 'count', left - deleted)
  redis.call('HSET', KEYS[1], 'updated_at', whole(now()))
  keep()
end
return {deleted, vectors, 0, 0}
