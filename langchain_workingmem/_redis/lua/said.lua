-- Goes after prelude.lua, before the scripts that change which messages are on the current branch.

local edited = {} -- the sequence numbers of messages whose content a script has changed

-- Returns under which keys a message of the current branch is counted: none if it is tool traffic or was refused.
local function said_keys(said)
  local kind = string.sub(said, 1, 1)
  if kind == '/' or string.sub(said, -1) == '!' then return {} end
  return kind == 'a' and {5, 6} or {5}
end

-- Adds a message of the current branch to what the history counts.
local function add_said(seq, said)
  for _, key in ipairs(said_keys(said)) do redis.call('ZADD', KEYS[key], seq, seq .. ':' .. said) end
end

-- Removes a message from what the history counts.
local function remove_said(seq, said)
  redis.call('ZREM', KEYS[5], seq .. ':' .. said)
  redis.call('ZREM', KEYS[6], seq .. ':' .. said)
end

-- Returns to how many media a message refers; their bytes lie beside the messages under NUL and their hash, and under NUL, # and the
-- hash how often they are referred to. `by` changes that: what nobody refers to goes. ARGV[first + 1], ARGV[first + 3], ... are bytes.
local function refer(value, by, first)
  local number = 0
  for digest in string.gmatch(string.sub(value, -2) == ']}' and string.match(value, '.*,"media":%[(.*)$') or '', '"(%x+)') do
    local count = by and redis.call('HINCRBY', KEYS[3], '\0#' .. digest, by)
    if first and count == 1 then redis.call('HSET', KEYS[3], '\0' .. digest, ARGV[first + 1 + 2 * number]) end
    if count == 0 then redis.call('HDEL', KEYS[3], '\0' .. digest, '\0#' .. digest) end
    number = number + 1
  end
  return number
end

-- Returns the tokens of all questions and answers of the current branch.
local function tokens_said()
  local last = redis.call('ZRANGE', KEYS[5], -1, -1)[1]
  return last and parse_said(last).upto or 0
end
