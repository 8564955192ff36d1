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

-- Returns the tokens of all questions and answers of the current branch.
local function tokens_said()
  local last = redis.call('ZRANGE', KEYS[5], -1, -1)[1]
  return last and parse_said(last).upto or 0
end
