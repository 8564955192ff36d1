-- In front of every script over threads.
-- KEYS[1] thread (HASH)  KEYS[2] order (ZSET)  KEYS[3] messages (HASH)  KEYS[4] prefix of the thread's vectors
-- KEYS[5] said (ZSET)  KEYS[6] answers (ZSET)  KEYS[7] superseded (ZSET)  KEYS[8] aliases (ZSET)
-- KEYS[9] trash (HASH): number -> owner  KEYS[10] working memory (HASH)  KEYS[11] its revisions (STREAM)
-- For the working memory of a resource: KEYS[1] its tombstone (STRING)  KEYS[2] working memory  KEYS[3] its revisions
-- `order` holds the current branch, `superseded` what the conversation has left behind; both map ids to sequence numbers.
-- A stored message is one JSON object that begins with what memory knows about it:
--   {"stored_at":<us>,"vectors":"<model>/<size>/<chunks>","said":"<words>/<weight>/<upto>","state":"<state>","type":"human","data":{...}}
-- `model` names the embedding settings behind its vectors, and is empty while it has none; `size` is <tokens>, or
-- <tokens>~<author> where the author has a name. `words` is a digest behind q (a question) or a (an answer), empty for tool
-- traffic; `weight` its tokens, and `upto` the tokens of all that was said on the branch up to it; a ! at the end: a provider
-- refused it. `state` tells who saved it: empty: some program, t: a turn, with the number of its question behind it, a number: a checkpointed state, which began at that
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

local function as_integer(number)
  return string.format('%.0f', number)
end

-- The sequence number of a message, or of the one in front of which an older version stands; Lua would write one as -0.
local function seq_of(score)
  return math.ceil(tonumber(score)) + 0
end

-- An error reply when `resource` is given and is not the owner.
local function wrong_owner(resource)
  local owner = redis.call('HGET', KEYS[1], 'resource')
  if owner and resource ~= '' and owner ~= resource then
    return redis.error_reply('WMOWNER the thread belongs to another resource')
  end
end

-- A member of `said` as seq, words, weight, upto.
local function parse_said(member)
  local seq, words, weight, upto = string.match(member, '^(%d+):(%w*)/(%d+)/(%d+)')
  return {seq = tonumber(seq), words = words, weight = tonumber(weight), upto = tonumber(upto)}
end
