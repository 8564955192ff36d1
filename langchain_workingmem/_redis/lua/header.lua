-- Goes before every script over threads.
-- KEYS[1] thread (HASH)  KEYS[2] order (ZSET)  KEYS[3] messages (HASH)  KEYS[4] prefix of the thread's vectors
-- KEYS[5] said (ZSET)  KEYS[6] answers (ZSET)  KEYS[7] superseded (ZSET)  KEYS[8] aliases (ZSET)
-- KEYS[9] trash (HASH): number -> owner  KEYS[10] working memory (HASH)  KEYS[11] its revisions (STREAM)
-- KEYS[12] only where a room is told of what changes (WMCOVERED): what it keeps of the thread (HASH)
-- For the working memory of a user: KEYS[1] its tombstone (STRING)  KEYS[2] working memory  KEYS[3] its revisions
-- `order` holds the current branch, `superseded` the other branches; both map message ids to sequence numbers.
-- `said` holds <seq>:<said> for each question and answer of the current branch, `answers` the answers among them.
-- A stored message is one JSON object. It begins with a header (docs/storage-layout.md explains each part):
--   {"stored_at":<us>,"vectors":"<model>/<size>/<chunks>","said":"<words>/<weight>/<upto>","state":"<state>",
local LAYOUT = '11' -- as in _redis/layout.py; each thread names the layout that it was written in

-- What optional rooms and larger variants of a script add: functions that they put in front of its body (docs/design.md).
local hooks = {}

local HEADER = '^{"stored_at":(%d+),"vectors":"(%x*)/([^/]*)/(%d+)","said":"([^"]*)","state":"([^"]*)",()'

local HEADER_SAID = '^{"stored_at":%d+,"vectors":"[^"]*","said":"(%w*)' -- the words of a message

-- Writes a header.
local function header(at, model, size, chunks, said, state)
  return '{"stored_at":' .. at .. ',"vectors":"' .. model .. '/' .. size .. '/' .. chunks .. '","said":"' .. said
    .. '","state":"' .. state .. '",'
end

-- Returns the type of a message whose header ends at `rest`.
local function role_at(value, rest)
  return string.match(value, '^"type":"([^"]*)"', rest)
end

-- Writes a number without an exponent; Lua would round it.
local function as_integer(number)
  return string.format('%.0f', number)
end

-- Returns the sequence number of a message, or for an older version that of the message it belongs to. `+ 0` avoids -0.
local function seq_of(score)
  return math.ceil(tonumber(score)) + 0
end

-- Returns an error reply if `user` is given and does not own the thread, whose `owner` may be read already.
local function wrong_owner(user, owner)
  if owner == nil then owner = redis.call('HGET', KEYS[1], 'user') end
  if owner and user ~= '' and owner ~= user then
    return redis.error_reply('WMOWNER the thread belongs to another user')
  end
end

-- Whether `said` or `words` are those of a structured answer. A list may hold it as tool traffic, because it looks the same while
-- its turn goes on, or where the turn was abandoned: so it is recognised, and contradicts nothing.
local function is_data(said)
  return string.sub(said, 2, 2) == 's'
end

-- Splits a member of `said`.
local function parse_said(member)
  local seq, words, weight, upto = string.match(member, '^(%d+):(%w*)/(%d+)/(%d+)')
  return {seq = tonumber(seq), words = words, weight = tonumber(weight), upto = tonumber(upto)}
end
