-- In front of the scripts that write, behind header.lua.

-- Microseconds since the epoch. A double holds them exactly, but Lua prints it rounded: hence `whole`.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
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
