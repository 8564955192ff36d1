-- In front of the scripts that change what is on the current branch, behind prelude.lua.

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

-- Keeps the words that a question had before it was edited under its id: an older version is superseded, stands between two
-- sequence numbers, in front of its message, and has an id of its own.
local function keep_version(id, seq, value)
  local at, _, size, _, said, state, rest = string.match(value, HEADER)
  local older = redis.call('ZRANGE', KEYS[7], '(' .. whole(seq - 1), '(' .. seq, 'BYSCORE')
  local version = string.sub(id, 1, 400) .. '~' .. string.match(said, '^%w*')
  while redis.call('HEXISTS', KEYS[3], version) == 1 do version = version .. '~' end
  redis.call('HSET', KEYS[3], version, header(at, '', size, 0, said, state) .. string.sub(value, rest))
  older[#older + 1] = version
  for number, one in ipairs(older) do
    redis.call('ZADD', KEYS[7], seq - 1 + number / (#older + 1), one)
  end
end

-- Gives a message its older words back; those of now become a version. Returns the id of the message.
local function take_version(version, seq)
  local number = whole(math.ceil(tonumber(seq)))
  local key = KEYS[2]
  local id = redis.call('ZRANGE', key, number, number, 'BYSCORE')[1]
  if not id then
    key = KEYS[7]
    id = redis.call('ZRANGE', key, number, number, 'BYSCORE')[1]
  end
  if not id then return version end
  local value, old = redis.call('HGET', KEYS[3], id), redis.call('HGET', KEYS[3], version)
  local _, _, _, _, said = string.match(value, HEADER)
  drop_vectors(number, value)
  if key == KEYS[2] then unlist_said(number, said) end
  redis.call('ZREM', KEYS[7], version)
  redis.call('HDEL', KEYS[3], version)
  keep_version(id, number, value)
  redis.call('HSET', KEYS[3], id, old)
  local _, _, _, _, old_said = string.match(old, HEADER)
  if key == KEYS[2] then list_said(number, old_said) end
  return id
end

-- Puts a message that was superseded back on the current branch. Returns 1, or 0 when it is not superseded, and its id.
local function revive(id)
  local seq = redis.call('ZSCORE', KEYS[7], id)
  if seq and string.find(seq, '.', 1, true) then
    id = take_version(id, seq)
    seq = redis.call('ZSCORE', KEYS[7], id)
  end
  if not seq then return 0, id end
  local _, _, _, _, said = string.match(redis.call('HGET', KEYS[3], id), HEADER)
  redis.call('ZREM', KEYS[7], id)
  redis.call('ZADD', KEYS[2], seq, id)
  list_said(seq, said)
  return 1, id
end
