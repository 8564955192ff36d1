-- Deletes messages or a thread; later slices delete the vectors that are too many for this one.
-- ARGV  resource or '', number of vectors at most, what ('messages', 'all' messages, 'thread', 'user' or 'undo'), for undo the
--       `updated_at` that the write has left, message ids
-- 'user' deletes a thread of a resource that is being deleted with all of its data.
-- Undo takes back a write that met the deletion of its resource: the thread if it has not changed since, else messages. With
-- message ids the thread goes only if this write made it: the deletion has to find an older one, to delete its checkpoints.
-- Reply numbers of messages deleted (-1: there is no thread), of vectors, of working memories (with message ids: of ids that are left to
--       do), of their revisions (with message ids: what tell_change returns), what a room has deleted with them (a list), what
--       `renew_ttl` returns; WMOWNER, WMCOVERED, WMKEPT
local refusal = write_refusal(ARGV[1])
if refusal then return refusal end
if redis.call('EXISTS', KEYS[1]) == 0 then return {-1, 0, 0, 0, {}, redis.call('EXISTS', KEYS[9])} end
check_key_types()
redis.call('HLEN', KEYS[9])
local within_budget, what, first = new_budget(tonumber(ARGV[2])), ARGV[3], 4
if what == 'undo' then
  local times = redis.call('HMGET', KEYS[1], 'updated_at', 'created_at')
  what = times[1] == ARGV[4] and (#ARGV == 4 or times[2] == ARGV[4]) and 'thread' or 'messages'
  first = 5
end
if what ~= 'messages' then
  refusal = what ~= 'user' and hooks.keeps and hooks.keeps(what == 'all' and 'clear' or 'thread')
  if refusal then return refusal end
  if what == 'user' then what = 'thread' end
  local deleted = redis.call('ZCARD', KEYS[2]) + redis.call('ZCARD', KEYS[7])
  local memories, revisions = redis.call('EXISTS', KEYS[10]), redis.call('XLEN', KEYS[11])
  local more = hooks.count and hooks.count() or {}
  trash_all_messages()
  if KEYS[12] then redis.call('UNLINK', KEYS[12]) end
  if what == 'thread' then
    redis.call('UNLINK', KEYS[1], unpack(KEYS, 10))
    return {deleted, empty_trash(within_budget), memories, revisions, more, redis.call('EXISTS', KEYS[9])}
  end
  if deleted == 0 then return {0, 0, 0, 0, {}, redis.call('EXISTS', KEYS[9])} end
  redis.call('HDEL', KEYS[1], 'refused', 'drop_vectors_from', 'pending')
  if not hooks.is_kept then redis.call('HDEL', KEYS[1], 'covered') end
  redis.call('HSET', KEYS[1], 'count', 0, 'updated_at', as_integer(now()), 'trash', 1)
  return {deleted, empty_trash(within_budget), 0, 0, more, renew_ttl()}
end

local seqs, last = {}, math.min(#ARGV, ARGV[3] == 'messages' and hooks.most_deleted and first - 1 + hooks.most_deleted or #ARGV)
for at = first, last do
  seqs[#seqs + 1] = redis.call('ZSCORE', KEYS[2], ARGV[at]) or redis.call('ZSCORE', KEYS[7], ARGV[at]) or nil
end
refusal = hooks.keeps and hooks.keeps('delete', seqs)
if refusal then return refusal end
local deleted, vectors = 0, 0
local superseded = 0 -- of those deleted; `count` does not include them
local number
local function drop(id, seq, value)
  local _, _, _, chunks, said = string.match(value, HEADER)
  if within_budget(tonumber(chunks)) then
    vectors = vectors + delete_vectors(seq, value)
  else
    number = number or next_trash_number()
    redis.call('ZADD', trash_key(number, 'order'), seq, id)
    redis.call('HSET', trash_key(number, 'messages'), id, value)
  end
  remove_said(seq, said)
  if string.sub(said, -1) == '!' then redis.call('HINCRBY', KEYS[1], 'refused', -1) end
  superseded = superseded + redis.call('ZREM', KEYS[7], id)
  redis.call('ZREM', KEYS[2], id)
  redis.call('HDEL', KEYS[3], id)
  refer(value, -1)
  redis.call('ZREMRANGEBYSCORE', KEYS[8], seq, seq)
  deleted = deleted + 1
end
for at = first, last do
  local id = ARGV[at]
  local seq = redis.call('ZSCORE', KEYS[2], id) or redis.call('ZSCORE', KEYS[7], id)
  if seq then
    local value = redis.call('HGET', KEYS[3], id)
    drop(id, seq, value)
    -- its older versions go too, unless it is one itself
    local versions = seq_of(seq) == tonumber(seq)
      and redis.call('ZRANGE', KEYS[7], '(' .. as_integer(seq - 1), '(' .. seq, 'BYSCORE') or {}
    for _, version in ipairs(versions) do
      redis.call('ZREM', KEYS[7], version)
      refer(redis.call('HGET', KEYS[3], version), -1)
      redis.call('HDEL', KEYS[3], version)
    end
  end
end
if deleted == 0 then return {0, 0, #ARGV - last, 0, {}, 0} end
local raw = tell_change(seqs, true)
if number then
  register_trash(number)
  redis.call('HSET', KEYS[1], 'trash', 1)
end
redis.call('HINCRBY', KEYS[1], 'count', superseded - deleted)
redis.call('HSET', KEYS[1], 'updated_at', as_integer(now()))
return {deleted, vectors, #ARGV - last, raw, {}, renew_ttl()}
