-- Writes a part of a copied or imported thread, with the times and vectors of its messages.
-- ARGV  mode, owner, thread as a tag, number of fields and values of a new thread, those, then for each message: id, kind,
--       value, hash and bytes of each reference to media in it, and for each chunk that the header of the value counts: number of
--       fields and values of its vector, those
-- Modes new:token: the thread must not exist
--       begin:token, more:token, end:token: the same in several steps; in between the field `unfinished` holds the token
--       join: the thread is created unless it exists; messages that it has are skipped
--       grow:id: the same, but only if the thread ends with this message; without an id, if it never had one
-- Kinds 0: on the current branch; 1: superseded; 2: an older version of the next message, which is in the same call.
--       A version is skipped if the thread has its message.
--       3: the place of a forgotten question or answer, of which the id is q or a; written if the message before it was new.
--       4: the id of a forgotten message; the thread then takes no message of this id. Both have no value.
-- The state 's' of a message says that it is in the checkpointed state of its thread; write.lua names such states.
-- Times stay, but rise strictly: one that is too early becomes a microsecond later than the one before. 0 means now.
-- Reply 1 if the thread was created, number of new messages, number of messages on the current branch without vectors
--       (also of skipped ones), HGETALL of the thread; WMEXISTS, WMUNFINISHED (another writer has not finished it), WMOWNER,
--       WMCOVERED, WMNOTHREAD.
local mode, token = string.match(ARGV[1], '^(%a+):?(.*)$')
local resource, tag, width = ARGV[2], ARGV[3], tonumber(ARGV[4])
local arg = 5 + width
check_key_types()
local first = arg
while ARGV[first + 1] == '3' or ARGV[first + 1] == '4' do first = first + 3 end
if mode == 'grow' then
  local last = redis.call('ZRANGE', KEYS[2], -1, -1)[1]
  local is_new = redis.call('HEXISTS', KEYS[1], 'last_at') == 0
  if last ~= token and not (is_new and token == '') then return redis.error_reply('WMEXISTS the thread ends otherwise') end
end
local present, made = now(), 0
if redis.call('EXISTS', KEYS[1]) == 0 then
  if mode == 'more' or mode == 'end' then return redis.error_reply('WMNOTHREAD') end
  made = 1
  init_thread(as_integer(present))
  redis.call('HSET', KEYS[1], 'resource', resource)
  call_in_batches('HSET', KEYS[1], 5, 4 + width)
  if mode == 'begin' then redis.call('HSET', KEYS[1], 'unfinished', token) end
  refresh_labels()
-- the ids of a copy are new: if one exists, this step was written before and its reply was lost
elseif mode ~= 'join' and mode ~= 'grow' and redis.call('HEXISTS', KEYS[3], ARGV[first] or '') == 0 then
  local writer, starts = redis.call('HGET', KEYS[1], 'unfinished'), mode == 'new' or mode == 'begin'
  if writer ~= token or starts then
    if writer and starts and not wrong_owner(resource) then return redis.error_reply('WMUNFINISHED') end
    return redis.error_reply('WMEXISTS the thread exists')
  end
end
local refusal = write_refusal(resource)
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
local function rising(at)
  return math.max(at == '0' and present or tonumber(at), last_at + 1)
end
local count, new, bare, upto, versions = 0, 0, 0, tokens_said(), {}
local is_join = mode == 'join' or mode == 'grow'
local is_new, next_seq = made == 1 or not (is_join or redis.call('HEXISTS', KEYS[3], ARGV[first] or '') == 1), seq
local function add_forgotten()
  while ARGV[arg + 1] == '3' or ARGV[arg + 1] == '4' do
    local id, is_place = ARGV[arg], ARGV[arg + 1] == '3'
    if is_place and is_new then
      redis.call('ZADD', KEYS[8], as_integer(seq), 'forgotten:' .. id .. ':' .. as_integer(seq))
      seq = seq + 1
    elseif not is_place and redis.call('HEXISTS', KEYS[3], id) == 0 then
      redis.call('ZADD', KEYS[8], -1, id)
    end
    arg = arg + 3
  end
end
add_forgotten()
while arg <= #ARGV do
  local id, kind, value, media = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], arg + 3
  local at, model, size, chunks, said, state, rest = string.match(value, HEADER)
  local known = redis.call('HGET', KEYS[3], id) or (redis.call('ZSCORE', KEYS[8], id) == '-1' and value)
  if known then
    model = select(2, string.match(known, HEADER))
  elseif kind == '2' then
    versions[#versions + 1] = {id, value, media}
  else
    for number, version in ipairs(versions) do
      local at, _, size, _, said, state, rest = string.match(version[2], HEADER)
      redis.call('HSET', KEYS[3], version[1],
        header(as_integer(rising(at)), '', size, 0, said, state) .. string.sub(version[2], rest))
      refer(version[2], 1, version[3])
      redis.call('ZADD', KEYS[7], seq - 1 + number / (#versions + 1), version[1])
      if string.sub(said, -1) == '!' then redis.call('HINCRBY', KEYS[1], 'refused', 1) end
    end
    new = new + #versions
    last_at = rising(at)
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
      redis.call('HSET', key, 'resource', resource, 'thread', tag, 'message', id, 'created_at', as_integer(last_at))
      expire_vector(key)
    end
    arg = arg + 1 + fields
  end
  if kind ~= '2' then
    versions, is_new = {}, not known
    if not known then new, seq = new + 1, seq + 1 end
  end
  add_forgotten()
end
if seq > next_seq then
  redis.call('HSET', KEYS[1], 'next_seq', as_integer(seq), 'last_at', as_integer(last_at))
  redis.call('HINCRBY', KEYS[1], 'count', count)
end
if mode == 'end' then redis.call('HDEL', KEYS[1], 'unfinished') end
renew_ttl(mode ~= 'new' and mode ~= 'end')
return {made, new, bare, redis.call('HGETALL', KEYS[1])}
