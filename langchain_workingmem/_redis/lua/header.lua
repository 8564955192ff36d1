-- Goes before every script over threads.
-- KEYS[1] thread (HASH)  KEYS[2] order (ZSET)  KEYS[3] messages (HASH)  KEYS[4] prefix of the thread's vectors
-- KEYS[5] said (ZSET)  KEYS[6] answers (ZSET)  KEYS[7] superseded (ZSET)  KEYS[8] aliases (ZSET)
-- KEYS[9] trash (HASH): number -> owner  KEYS[10] what observations cover (HASH)  KEYS[11] working memory (HASH)
-- KEYS[12] its revisions (STREAM)
-- For the working memory of a resource: KEYS[1] its tombstone (STRING)  KEYS[2] working memory  KEYS[3] its revisions
-- `order` holds the current branch, `superseded` the other branches; both map message ids to sequence numbers.
-- `said` holds <seq>:<said> for each question and answer of the current branch, `answers` the answers among them.
-- A stored message is one JSON object. It begins with a header (docs/storage-layout.md explains each part):
--   {"stored_at":<us>,"vectors":"<model>/<size>/<chunks>","said":"<words>/<weight>/<upto>","state":"<state>",
local LAYOUT = '4' -- as in _redis/layout.py; each thread names the layout that it was written in

local HEADER = '^{"stored_at":(%d+),"vectors":"(%x*)/([^/]*)/(%d+)","said":"([^"]*)","state":"([^"]*)",()'

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

-- Returns an error reply if `resource` is given and does not own the thread.
local function wrong_owner(resource)
  local owner = redis.call('HGET', KEYS[1], 'resource')
  if owner and resource ~= '' and owner ~= resource then
    return redis.error_reply('WMOWNER the thread belongs to another resource')
  end
end

-- Splits a member of `said`.
local function parse_said(member)
  local seq, words, weight, upto = string.match(member, '^(%d+):(%w*)/(%d+)/(%d+)')
  return {seq = tonumber(seq), words = words, weight = tonumber(weight), upto = tonumber(upto)}
end
