-- Goes after common.lua and rows.lua, before the scripts that change messages: what belongs to a message comes and goes with it.
local LAYOUT = '14' -- as in indexes.py
local LATEST = 9223372036854 -- ms: Search keeps an expiry as nanoseconds in 64 bits
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local stored = redis.call('HMGET', KEYS[1], 'count', 'version', 'title_source')
local count, version = tonumber(stored[1] or 0), tonumber(stored[2] or 0)
local title_source = stored[3] -- seq of the message that a model has made the title from
local moved, gone = {}, {} -- seqs of messages that became current or superseded, and of those that were deleted or edited: for rows

-- Fails if another program has stored another type under a key: before the first write, so that a script does all or nothing.
for _, at in ipairs({2, 3, 7}) do redis.call('ZCARD', KEYS[at]) end
for _, at in ipairs({4, 5, 6, 9}) do redis.call('HLEN', KEYS[at]) end

-- Returns the facts of the message at a seq, and whether it is current.
local function facts_at(seq)
  local facts = redis.call('ZRANGE', KEYS[2], seq, seq, 'BYSCORE')[1]
  return facts or redis.call('ZRANGE', KEYS[3], seq, seq, 'BYSCORE')[1], facts ~= nil
end

-- Deletes the vectors that facts name; returns how many.
local function delete_vectors(facts)
  local keys = vector_keys(facts)
  for _, key in ipairs(keys) do redis.call('UNLINK', key) end
  return #keys
end

-- Deletes about `most` vectors of messages that are dropped; returns how many, and whether there are more.
local function sweep(most)
  local gone = 0
  while gone < most do
    local facts = redis.call('ZPOPMIN', KEYS[7])[1]
    if not facts then return gone, false end
    gone = gone + delete_vectors(facts)
  end
  return gone, redis.call('EXISTS', KEYS[7]) == 1
end

-- Takes a title away that was made from a message.
local function forget_title(seq)
  if title_source and tonumber(title_source) == tonumber(seq) then
    title_source = redis.call('HDEL', KEYS[1], 'title', 'title_source') and nil
  end
end

-- Writes the sign in front of a body.
local function sign(seq, mark)
  local body = redis.call('HGET', KEYS[4], seq)
  if body then redis.call('HSET', KEYS[4], seq, mark .. string.match(body, '^[-!]?(.*)$')) end
end

-- Takes a message off the current ones. Its vectors are dropped: recall finds it no more.
local function supersede(facts)
  local seq, words, tokens, upto, writer, vectors, id = string.match(facts, FACTS)
  redis.call('ZREM', KEYS[2], facts)
  redis.call('ZADD', KEYS[3], seq, table.concat({seq, words, tokens, upto, writer, '', id}, ':'))
  if vectors ~= '' then redis.call('ZADD', KEYS[7], seq, facts) end
  sign(seq, '-')
  moved[#moved + 1] = seq
  count = count - 1
  forget_title(seq)
end

-- Makes a superseded message current again: of the messages of its id it is the one that counts.
local function bring_back(facts)
  local seq, words, _, _, _, _, id = string.match(facts, FACTS)
  redis.call('ZREM', KEYS[3], facts)
  redis.call('ZADD', KEYS[2], seq, facts)
  local dropped = redis.call('ZRANGE', KEYS[7], seq, seq, 'BYSCORE')[1] -- its new vectors have the same keys
  if dropped then delete_vectors(dropped) redis.call('ZREM', KEYS[7], dropped) end
  local seqs = {seq}
  for _, other in ipairs(locate(redis.call('HGET', KEYS[5], id))) do
    if other ~= tonumber(seq) then seqs[#seqs + 1] = other end
  end
  redis.call('HSET', KEYS[5], id, table.concat(seqs, ' '))
  sign(seq, string.sub(words, -1) == '!' and '!' or '')
  moved[#moved + 1] = seq
  count = count + 1
end

-- Writes fields of the thread, its counters and its expiry; rows follow their messages.
local function finish(fields, ttl)
  if #gone > 0 then redis.call('HINCRBY', KEYS[1], 'edits', 1) end
  change_rows(gone, true)
  change_rows(moved, false)
  version = version + 1
  redis.call('HSET', KEYS[1], 'count', whole(count), 'version', whole(version), unpack(fields)) -- in one step, because each makes Search index the thread again
  local expiry = ttl and whole(math.min(now / 1000 + ttl, LATEST))
  for at = 1, expiry and #KEYS or 0 do
    if at ~= 8 then redis.call('PEXPIREAT', KEYS[at], expiry) end
  end
end
