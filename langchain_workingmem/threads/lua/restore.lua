-- Writes a part of a copied, imported or backfilled thread, with the times and vectors of its messages.
-- ARGV  mode, owner, thread as a tag, number of fields and values of a new thread, those, number of ids of deleted messages, those,
--       then for each message: id, 0 (current) or 1 (superseded), value, hash and bytes of each reference to media in it, and for each
--       chunk that the header of the value counts: number of fields and values of its vector, those
-- Modes new:  the thread must not exist, unless it has the first of these messages: then a reply was lost
--       more: the thread must exist
--       join: the thread is created unless it exists
-- Messages that the thread has, or has forgotten, are skipped; of the ids of deleted messages it takes none later.
-- The state 's' of a message says that it is in the checkpointed state of its thread; write.lua names such states.
-- Times stay, but rise strictly: one that is too early becomes a microsecond later than the one before. 0 means now.
-- Reply 1 if the thread was created, number of new messages, number of messages on the current branch without vectors
--       (also of skipped ones), HGETALL of the thread; WMEXISTS, WMOWNER, WMCOVERED, WMNOTHREAD.
local mode, user, tag, width = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
check_key_types()
local names = 5 + width
local arg = names + 1 + tonumber(ARGV[names])
local present, made, exists = now(), 0, redis.call('EXISTS', KEYS[1]) == 1
if exists and mode == 'new' and redis.call('HEXISTS', KEYS[3], ARGV[arg] or '') == 0 then
  return redis.error_reply('WMEXISTS the thread exists')
end
if not exists then
  if mode == 'more' then return redis.error_reply('WMNOTHREAD') end
  made = 1
  init_thread(as_integer(present))
  redis.call('HSET', KEYS[1], 'user', user)
  call_in_batches('HSET', KEYS[1], 5, 4 + width)
  refresh_labels()
end
local refusal = write_refusal(user)
if refusal then return refusal end
local thread = redis.call('HMGET', KEYS[1], 'next_seq', 'last_at')
local seq, last_at = tonumber(thread[1]), tonumber(thread[2] or 0)
local lineage -- the state that the messages of a checkpoint belong to
local function lineage_of(seq)
  if not lineage then
    local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    local state = first[1] and select(6, string.match(redis.call('HGET', KEYS[3], first[1]), HEADER))
    lineage = tonumber(state) and state or first[2] or as_integer(seq)
  end
  return lineage
end
local count, new, bare, upto = 0, 0, 0, tokens_said()
for at = names + 1, arg - 1 do
  if redis.call('HEXISTS', KEYS[3], ARGV[at]) == 0 then redis.call('ZADD', KEYS[8], -1, ARGV[at]) end
end
while arg <= #ARGV do
  local id, kind, value, media = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], arg + 3
  local at, model, size, chunks, said, state, rest = string.match(value, HEADER)
  local known = redis.call('HGET', KEYS[3], id) or (redis.call('ZSCORE', KEYS[8], id) == '-1' and value)
  if known then
    model = select(2, string.match(known, HEADER))
  else
    last_at = math.max(at == '0' and present or tonumber(at), last_at + 1)
    -- the sequence numbers are new: sums are made anew, and no checkpoint refers to a copy
    local words, weight, refused = string.match(said, '^(%w*)/(%d+)/%d+(!?)')
    if words ~= '' and kind == '0' then upto = upto + weight end
    said = words .. '/' .. weight .. '/' .. as_integer(words ~= '' and upto or 0) .. refused
    if state == 's' then state = lineage_of(seq) elseif state ~= '' then state = 't' end
    redis.call('HSET', KEYS[3], id,
      header(as_integer(last_at), model, size, chunks, said, state) .. string.sub(value, rest))
    refer(value, 1, media)
    if refused ~= '' then redis.call('HINCRBY', KEYS[1], 'refused', 1) end
    redis.call('ZADD', kind == '0' and KEYS[2] or KEYS[7], as_integer(seq), id)
    if kind == '0' then
      add_said(as_integer(seq), said)
      count = count + 1
    end
  end
  if model == '' and kind == '0' then bare = bare + 1 end
  arg = arg + 3 + 2 * refer(value)
  for chunk = 0, chunks - 1 do
    local fields = tonumber(ARGV[arg])
    if not known and fields > 0 then -- 0: Redis evicted the vector
      local key = vector_key(as_integer(seq), chunk, size)
      redis.call('HSET', key, unpack(ARGV, arg + 1, arg + fields))
      redis.call('HSET', key, 'user', user, 'thread', tag, 'message', id, 'created_at', as_integer(last_at))
      expire_vector(key)
    end
    arg = arg + 1 + fields
  end
  if not known then new, seq = new + 1, seq + 1 end
end
if new > 0 then
  redis.call('HSET', KEYS[1], 'next_seq', as_integer(seq), 'last_at', as_integer(last_at))
  redis.call('HINCRBY', KEYS[1], 'count', count)
end
renew_ttl()
return {made, new, bare, redis.call('HGETALL', KEYS[1])}
