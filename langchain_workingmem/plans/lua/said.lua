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
