-- In front of every script.
-- KEYS[1] thread (HASH)  KEYS[2] order (ZSET)  KEYS[3] messages (HASH)  KEYS[4] prefix of the thread's vectors
-- KEYS[5] said (ZSET)  KEYS[6] answers (ZSET)  KEYS[7] superseded (ZSET)  KEYS[8] aliases (ZSET)
-- KEYS[9] working memory (HASH)  KEYS[10] its revisions (STREAM)
-- For the working memory of a resource: KEYS[1] its tombstone (STRING)  KEYS[2] working memory  KEYS[3] its revisions
-- `order` holds the current branch, `superseded` what the conversation has left behind; both map ids to sequence numbers.
-- A stored message is one JSON object that begins with what memory knows about it:
--   {"stored_at":<us>,"vectors":"<model>/<size>/<chunks>","said":"<words>/<weight>/<upto>","state":"<state>","type":"human","data":{...}}
-- `model` names the embedding settings behind its vectors, and is empty while it has none; `size` is <tokens>, or
-- <tokens>~<author> where the author has a name. `words` is a digest behind q (a question) or a (an answer), empty for tool
-- traffic; `weight` its tokens, and `upto` the tokens of all that was said on the branch up to it; a ! at the end: a provider
-- refused it. `state` tells who saved it: empty: some program, t: a turn, a number: a checkpointed state, which began at that
-- sequence number.
-- The members of `said` are <seq>:<said> of the current branch: what the history counts. `answers` holds the answers among them.

local HEADER = '^{"stored_at":(%d+),"vectors":"(%x*)/([^/]*)/(%d+)","said":"([^"]*)","state":"([^"]*)",()'

local function header(at, model, size, chunks, said, state)
  return '{"stored_at":' .. at .. ',"vectors":"' .. model .. '/' .. size .. '/' .. chunks .. '","said":"' .. said
    .. '","state":"' .. state .. '",'
end

-- The type of a message whose header ends at `rest`.
local function role_at(value, rest)
  return string.match(value, '^"type":"([^"]*)"', rest)
end

-- Microseconds since the epoch. A double holds them exactly, but Lua prints it rounded: hence `whole`.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function whole(number)
  return string.format('%.0f', number)
end

-- An error reply when `resource` is given and is not the owner.
local function stranger(resource)
  local owner = redis.call('HGET', KEYS[1], 'resource')
  if owner and resource ~= '' and owner ~= resource then
    return redis.error_reply('WMOWNER the thread belongs to another resource')
  end
end

-- Calls a command for the arguments from ARGV[first] to ARGV[last], a thousand at a time: one by one, Search would read a
-- document with thousands of labels again for each of them, and `unpack` cannot take any number.
local function with_arguments(command, key, first, last)
  for at = first, last, 1000 do
    redis.call(command, key, unpack(ARGV, at, math.min(at + 999, last)))
  end
end

local function vector_key(seq, chunk, size)
  return KEYS[4] .. seq .. ':' .. chunk .. ':' .. size
end

-- The keys of a stored message's vectors.
local function vector_keys(seq, value)
  local _, _, size, chunks = string.match(value, HEADER)
  local keys = {}
  for chunk = 0, chunks - 1 do
    keys[#keys + 1] = vector_key(seq, chunk, size)
  end
  return keys
end

local function drop_vectors(seq, value)
  local dropped = 0
  for _, key in ipairs(vector_keys(seq, value)) do
    dropped = dropped + redis.call('DEL', key)
  end
  return dropped
end

-- Takes a message of the current branch into what the history counts, or out of it.
local function list_said(seq, said)
  local kind = string.sub(said, 1, 1)
  if string.sub(said, -1) == '!' then return end
  if kind == '/' then return end
  redis.call('ZADD', KEYS[5], seq, seq .. ':' .. said)
  if kind == 'a' then redis.call('ZADD', KEYS[6], seq, seq .. ':' .. said) end
end

local function unlist_said(seq, said)
  redis.call('ZREM', KEYS[5], seq .. ':' .. said)
  redis.call('ZREM', KEYS[6], seq .. ':' .. said)
end

-- A member of `said` as seq, words, weight, upto.
local function parse_said(member)
  local seq, words, weight, upto = string.match(member, '^(%d+):(%w*)/(%d+)/(%d+)')
  return {seq = tonumber(seq), words = words, weight = tonumber(weight), upto = tonumber(upto)}
end

-- The tokens of all that was said on the current branch.
local function spoken()
  local last = redis.call('ZRANGE', KEYS[5], -1, -1)[1]
  return last and parse_said(last).upto or 0
end

-- Takes a message off the current branch; it stays stored, without vectors. Returns 1, or 0 when it is not on it.
local function supersede(id)
  local seq = redis.call('ZSCORE', KEYS[2], id)
  if not seq then return 0 end
  local value = redis.call('HGET', KEYS[3], id)
  local at, _, size, _, said, state, rest = string.match(value, HEADER)
  drop_vectors(seq, value)
  unlist_said(seq, said)
  redis.call('HSET', KEYS[3], id, header(at, '', size, 0, said, state) .. string.sub(value, rest))
  redis.call('ZREM', KEYS[2], id)
  redis.call('ZADD', KEYS[7], seq, id)
  return 1
end

-- Puts a message that was superseded back on the current branch. Returns 1, or 0 when it is not superseded.
local function revive(id)
  local seq = redis.call('ZSCORE', KEYS[7], id)
  if not seq then return 0 end
  local _, _, _, _, said = string.match(redis.call('HGET', KEYS[3], id), HEADER)
  redis.call('ZREM', KEYS[7], id)
  redis.call('ZADD', KEYS[2], seq, id)
  list_said(seq, said)
  return 1
end

-- Calls visit(id, seq, value) for every message in `order`, or in `superseded`, a batch of replies in memory at a time.
local function each_message(visit, key)
  key = key or KEYS[2]
  local low = '-inf'
  while true do
    local ranked = redis.call('ZRANGE', key, low, '+inf', 'BYSCORE', 'LIMIT', 0, 500, 'WITHSCORES')
    if #ranked == 0 then return end
    for at = 1, #ranked, 2 do
      visit(ranked[at], ranked[at + 1], redis.call('HGET', KEYS[3], ranked[at]))
    end
    low = '(' .. ranked[#ranked]
  end
end

-- A thread with a `ttl` (ms) expires that long after its last write, all its own keys in one instant. Its vectors may be
-- many, so they hold a `lease` (ms since the epoch) of up to twice that, and a write renews it when less than a ttl is left.
-- `hold` is for each vector that is written, `keep` for the end of every write.
local lease
local function hold(vector)
  if lease == nil then lease = redis.call('HGET', KEYS[1], 'lease') end
  if lease then
    redis.call('PEXPIREAT', vector, lease)
  else
    redis.call('PERSIST', vector) -- one of the same name may be left of a thread that has expired
  end
end

local function keep()
  local ttl, held = unpack(redis.call('HMGET', KEYS[1], 'ttl', 'lease'))
  if not ttl then return end
  local ends = math.floor(now() / 1000) + ttl
  if tonumber(held or 0) < ends then
    held = whole(ends + ttl)
    redis.call('HSET', KEYS[1], 'lease', held)
    each_message(function(_, seq, value)
      for _, key in ipairs(vector_keys(seq, value)) do
        redis.call('PEXPIREAT', key, held)
      end
    end)
  end
  for _, place in ipairs({1, 2, 3, 5, 6, 7, 8, 9, 10}) do
    redis.call('PEXPIREAT', KEYS[place], whole(ends))
  end
end

-- An error reply when working memory must not be written: its thread is gone or somebody else's, its resource is deleted.
local function no_memory(resource)
  if #KEYS == 3 then
    return redis.call('EXISTS', KEYS[1]) == 1 and redis.error_reply('WMDELETED the resource is being deleted')
  end
  if redis.call('EXISTS', KEYS[1]) == 0 then return redis.error_reply('WMNOTHREAD') end
  return stranger(resource)
end

-- `labels` makes each pair of the metadata a tag, so that the index can filter on any of them.
local function refresh_labels()
  local fields = redis.call('HGETALL', KEYS[1])
  local labels = {}
  for at = 1, #fields, 2 do
    local key = string.match(fields[at], '^metadata:(.*)$')
    if key then labels[#labels + 1] = redis.sha1hex(key .. '=' .. fields[at + 1]) end
  end
  redis.call('HSET', KEYS[1], 'labels', table.concat(labels, ','))
end
