-- In front of every script.
-- KEYS[1] thread (HASH)  KEYS[2] order (ZSET)  KEYS[3] messages (HASH)  KEYS[4] prefix of the thread's vectors
-- KEYS[5] working memory (HASH)  KEYS[6] its revisions (STREAM); remember.lua has keys of its own
-- A stored message is one JSON object that begins with what memory knows about it:
--   {"stored_at":<us>,"vectors":"<model>/<tokens>/<chunks>","type":"human","data":{...}}
-- `model` names the embedding settings behind its vectors, and is empty while it has none.

local HEADER = '^{"stored_at":(%d+),"vectors":"(%x*)/(%d+)/(%d+)",()'

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

local function vector_key(seq, chunk, tokens)
  return KEYS[4] .. seq .. ':' .. chunk .. ':' .. tokens
end

local function drop_vectors(seq, tokens, chunks)
  for chunk = 0, chunks - 1 do
    redis.call('DEL', vector_key(seq, chunk, tokens))
  end
end

-- Calls visit(id, seq, value) for every message of the thread, a batch of replies in memory at a time.
local function each_message(visit)
  local low = '-inf'
  while true do
    local ranked = redis.call('ZRANGE', KEYS[2], low, '+inf', 'BYSCORE', 'LIMIT', 0, 500, 'WITHSCORES')
    if #ranked == 0 then return end
    for at = 1, #ranked, 2 do
      visit(ranked[at], ranked[at + 1], redis.call('HGET', KEYS[3], ranked[at]))
    end
    low = '(' .. ranked[#ranked]
  end
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
