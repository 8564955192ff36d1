-- ARGV  resource or '', most vectors that are deleted at once, what ('messages', 'all' messages, the 'thread' itself, or
--       'undo'), for undo `updated_at` as the write that is undone has left it, message ids
-- Undo takes away a write that met the deletion of its resource: the thread, when nobody has changed it since (all that is
-- in it belongs to what is deleted), else the messages.
-- Reply number of messages deleted (-1 when there is no thread), of vectors, of working memories, of their revisions, 1 when
--       slices are left to be done; WMOWNER. All messages go in the same step, of their vectors as many as a slice takes.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
if redis.call('EXISTS', KEYS[1]) == 0 then return {-1, 0, 0, 0, redis.call('EXISTS', KEYS[9])} end
check_key_types()
redis.call('HLEN', KEYS[9])
local within_budget, what, first = new_budget(tonumber(ARGV[2])), ARGV[3], 4
if what == 'undo' then
  what = redis.call('HGET', KEYS[1], 'updated_at') == ARGV[4] and 'thread' or 'messages'
  first = 5
end
if what ~= 'messages' then
  local deleted = redis.call('ZCARD', KEYS[2]) + redis.call('ZCARD', KEYS[7])
  local memories, revisions = redis.call('EXISTS', KEYS[10]), redis.call('XLEN', KEYS[11])
  trash_all_messages()
  if what == 'thread' then
    redis.call('UNLINK', KEYS[1], KEYS[10], KEYS[11])
    return {deleted, empty_trash(within_budget), memories, revisions, redis.call('EXISTS', KEYS[9])}
  end
  if deleted == 0 then return {0, 0, 0, 0, redis.call('EXISTS', KEYS[9])} end
  redis.call('HDEL', KEYS[1], 'refused', 'drop_vectors_from')
  redis.call('HSET', KEYS[1], 'count', 0, 'updated_at', as_integer(now()), 'trash', 1)
  return {deleted, empty_trash(within_budget), 0, 0, renew_ttl()}
end

local deleted, vectors = 0, 0
local left = 0 -- of those that were deleted, the superseded ones: `count` has no part of them
local number
local function drop(id, seq, value)
  local _, _, _, chunks, said = string.match(value, HEADER)
  if within_budget(tonumber(chunks)) then
    vectors = vectors + delete_vectors(seq, value)
  else -- later
    number = number or next_trash_number()
    redis.call('ZADD', trash_key(number, 'order'), seq, id)
    redis.call('HSET', trash_key(number, 'messages'), id, value)
  end
  remove_said(seq, said)
  if string.sub(said, -1) == '!' then redis.call('HINCRBY', KEYS[1], 'refused', -1) end
  left = left + redis.call('ZREM', KEYS[7], id)
  redis.call('ZREM', KEYS[2], id)
  redis.call('HDEL', KEYS[3], id)
  for _, alias in ipairs(redis.call('ZRANGE', KEYS[8], seq, seq, 'BYSCORE')) do redis.call('ZREM', KEYS[8], alias) end
  deleted = deleted + 1
end
for place = first, #ARGV do
  local id = ARGV[place]
  local seq = redis.call('ZSCORE', KEYS[2], id) or redis.call('ZSCORE', KEYS[7], id)
  if seq then
    local value = redis.call('HGET', KEYS[3], id)
    drop(id, seq, value)
    -- with the older versions of its words, unless it is one
    local versions = seq_of(seq) == tonumber(seq)
      and redis.call('ZRANGE', KEYS[7], '(' .. as_integer(seq - 1), '(' .. seq, 'BYSCORE') or {}
    for _, version in ipairs(versions) do
      redis.call('ZREM', KEYS[7], version)
      redis.call('HDEL', KEYS[3], version)
    end
  end
end
if deleted == 0 then return {0, 0, 0, 0, 0} end
if number then
  register_trash(number)
  redis.call('HSET', KEYS[1], 'trash', 1)
end
redis.call('HINCRBY', KEYS[1], 'count', left - deleted)
redis.call('HSET', KEYS[1], 'updated_at', as_integer(now()))
return {deleted, vectors, 0, 0, renew_ttl()}
