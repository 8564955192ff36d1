#!lua flags=allow-oom
-- Deletes messages or a thread; later slices delete the vectors that are too many for this one.
-- ARGV  user or '', number of vectors at most, what ('messages', 'until', 'all' messages, 'thread', 'user' or 'undo'),
--       for undo the `updated_at` that the write has left, for until a time (us), else message ids
-- 'user' deletes a thread of a user that is being deleted with all of its data. 'until' deletes a slice of the oldest messages,
-- those stored up to the time. The ids of 'messages' stay among the aliases, with -2 as their sequence
-- number: a state or list that still holds them brings none back; an older export does. For lists without ids, `forgotten:<q or a>:<sequence number>` says there that a question or an answer is
-- missing at this place.
-- Undo takes back a write that met the deletion of its user: the thread if it has not changed since, else messages. With
-- message ids the thread goes only if this write made it: the deletion has to find an older one, to delete its checkpoints.
-- Reply numbers of messages deleted (-1: there is no thread), of vectors, of working memories (with message ids: of ids that are left to
--       do), of their revisions, what a room has deleted with them (a list), what
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
if what == 'thread' or what == 'user' or what == 'all' then
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

local function seq_at(id)
  return redis.call('ZSCORE', KEYS[2], id) or redis.call('ZSCORE', KEYS[7], id) or nil
end

-- Adds the ids of the oldest messages of a sorted set that were stored up to a time. A call and its results go together; calls at the
-- end of the thread stay for a day, as they may still be under way. Returns 1 if there are more, else 0.
local DAY = 24 * 3600 * 1000000
local function add_oldest(ids, key, time, most)
  local before, group, is_open, from = #ids, #ids, false, 0 -- `group`: the number of ids before the last call
  while true do
    local some = redis.call('ZRANGE', key, from, from + 99)
    for at, value in ipairs(some[1] and redis.call('HMGET', KEYS[3], unpack(some)) or {}) do
      local stored_at, _, _, _, said, _, rest = string.match(value, HEADER)
      local is_result, is_late = role_at(value, rest) == 'tool', tonumber(stored_at) > time
      if is_late or (#ids - before >= most and not is_result) then
        for _ = group + 1, is_late and is_result and #ids or group do table.remove(ids) end
        return is_late and 0 or 1
      end
      if not is_result then group = #ids end
      ids[#ids + 1] = some[at]
      is_open = key == KEYS[2] and string.sub(said, 1, 1) == '/' and tonumber(stored_at) > now() - DAY
    end
    from = from + 100
    if #some < 100 then
      for _ = group + 1, is_open and #ids or group do table.remove(ids) end
      return 0
    end
  end
end

local ids, waiting, seqs, most = {}, 0, {}, ARGV[3] ~= 'undo' and hooks.most_deleted
if what == 'until' then
  for _, key in ipairs({KEYS[2], KEYS[7]}) do
    waiting = math.max(waiting, add_oldest(ids, key, tonumber(ARGV[4]), most or 100))
  end
else
  local last = math.min(#ARGV, most and first - 1 + most or #ARGV)
  waiting = #ARGV - last
  for at = first, last do ids[#ids + 1] = ARGV[at] end
end
for _, id in ipairs(ids) do seqs[#seqs + 1] = seq_at(id) end
refusal = hooks.keeps and hooks.keeps('delete', seqs)
if refusal then return refusal end
local gone, has_names = ARGV[3] == 'messages' and -2, redis.call('EXISTS', KEYS[8]) == 1
local names = {} -- scores and members that stay among the aliases
local function keep_name(score, name)
  if not gone then return end
  names[#names + 1], names[#names + 2] = score, name
end
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
  local was_current = redis.call('ZREM', KEYS[2], id) == 1
  redis.call('HDEL', KEYS[3], id)
  refer(value, -1)
  keep_name(gone, id)
  for _, name in ipairs(has_names and redis.call('ZRANGE', KEYS[8], seq, seq, 'BYSCORE') or {}) do
    keep_name(gone, name)
    redis.call('ZREM', KEYS[8], name)
  end
  local kind = was_current and string.match(said, '^[qa]')
  if kind then keep_name(seq, 'forgotten:' .. kind .. ':' .. as_integer(seq)) end
  deleted = deleted + 1
end
for _, id in ipairs(ids) do
  local seq = seq_at(id)
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
for at = 1, #names, 1000 do redis.call('ZADD', KEYS[8], unpack(names, at, math.min(at + 999, #names))) end
if deleted == 0 then return {0, 0, waiting, 0, {}, 0} end
tell_change(seqs, true)
if number then
  register_trash(number)
  redis.call('HSET', KEYS[1], 'trash', 1)
end
redis.call('HINCRBY', KEYS[1], 'count', superseded - deleted)
redis.call('HSET', KEYS[1], 'updated_at', as_integer(now()))
return {deleted, vectors, waiting, 0, {}, renew_ttl()}
