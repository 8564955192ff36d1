-- Goes after common.lua and rows.lua, before the scripts that change messages.
local LAYOUT = '18' -- as in indexes.py
local START = 5040 * STRIDE -- most steps of a history divide it, so windows are as from 0 on; 2^15 of it need 40 bits
local owner, own_ttl, count, version, title, title_source, created_at, next_seq, last_at, total_tokens, next_number =
  unpack(redis.call('HMGET', KEYS[1], 'user', 'ttl', 'count', 'version', 'title', 'title_source', 'created_at',
    'next_seq', 'last_at', 'total_tokens', 'next_number'))
local ttl = head.ttl or tonumber(own_ttl)
count, version, next_seq = tonumber(count or 0), tonumber(version or 0), tonumber(next_seq)
last_at, total_tokens, next_number = tonumber(last_at or 0), tonumber(total_tokens or 0), tonumber(next_number or 0)
local moved, changed = {}, {} -- for rows: seqs of what became current or superseded, and of what was deleted or edited

-- Returns the first seq of a new thread: above what is dropped of an older one, whose vectors have the same keys. One
-- that has expired may have left vectors, of which nothing tells: so those that expire begin anywhere.
local function first_seq()
  local dropped = redis.call('ZRANGE', KEYS[7], -1, -1, 'WITHSCORES')[2] or -1
  return math.max(dropped + 1, ttl and now % 2 ^ 15 * START or 0)
end

-- Returns the stored message of a seq as a table, with the set that it is in, and its facts there.
local function message_at(seq)
  for _, set in ipairs({KEYS[2], KEYS[3]}) do
    local facts = redis.call('ZRANGE', set, seq, seq, 'BYSCORE')[1]
    local found = {set = set, facts = facts, is_current = set == KEYS[2]}
    found.seq, found.digest, found.tokens, found.total_tokens, found.writer, found.vectors, found.id =
      string.match(facts or '', '^(%d+):([^:]*):(%d+):(%d+):([^:]*):([^:]*):(.*)$')
    if facts then return found end
  end
end

-- Writes the facts of a stored message anew.
local function write_facts(message, is_current)
  redis.call('ZREM', message.set, message.facts)
  message.set, message.is_current = is_current and KEYS[2] or KEYS[3], is_current
  message.facts = table.concat({message.seq, message.digest, message.tokens, message.total_tokens, message.writer,
    message.vectors, message.id}, ':')
  redis.call('ZADD', message.set, message.seq, message.facts)
end

-- Deletes the vectors that facts name; returns how many.
local function delete_vectors(facts)
  local keys = vector_keys(facts)
  for _, key in ipairs(keys) do redis.call('UNLINK', key) end
  return #keys
end

-- Deletes about `most` vectors of messages that are dropped; returns how many, and whether there are more.
local function sweep(most)
  local number = 0
  while number < most do
    local facts = redis.call('ZPOPMIN', KEYS[7])[1]
    if not facts then return number, false end
    number = number + delete_vectors(facts)
  end
  return number, redis.call('EXISTS', KEYS[7]) == 1
end

local function delete_media(seq)
  local number = 0
  while redis.call('HDEL', KEYS[6], seq .. ':' .. number) == 1 do number = number + 1 end
end

-- Takes a title away that was made from a message.
local function forget_title(seq)
  if title_source and tonumber(title_source) == tonumber(seq) then
    redis.call('HDEL', KEYS[1], 'title', 'title_source')
    title, title_source = nil, nil
  end
end

-- Writes in front of a body that it is superseded (-), refused (!) or neither.
local function set_prefix(seq, prefix)
  local body = redis.call('HGET', KEYS[4], seq)
  if body then redis.call('HSET', KEYS[4], seq, prefix .. string.match(body, '^[-!]?(.*)$')) end
end

-- Removes what makes a message visible: its vectors are dropped, so recall finds it no more, and its title goes.
local function hide(message)
  if message.vectors ~= '' then redis.call('ZADD', KEYS[7], message.seq, message.facts) end
  if message.is_current then count = count - 1 end
  forget_title(message.seq)
end

local function supersede(message)
  hide(message)
  message.vectors = ''
  write_facts(message, false)
  set_prefix(message.seq, '-')
  moved[#moved + 1] = message.seq
end

-- Makes a superseded message current again: of the messages of its id it is the one that counts.
local function bring_back(message)
  write_facts(message, true)
  local dropped = redis.call('ZRANGE', KEYS[7], message.seq, message.seq, 'BYSCORE')[1]
  if dropped then -- its new vectors have the same keys
    delete_vectors(dropped)
    redis.call('ZREM', KEYS[7], dropped)
  end
  local seqs = {message.seq}
  for _, other in ipairs(locate(redis.call('HGET', KEYS[5], message.id))) do
    if other ~= tonumber(message.seq) then seqs[#seqs + 1] = other end
  end
  redis.call('HSET', KEYS[5], message.id, table.concat(seqs, ' '))
  set_prefix(message.seq, string.sub(message.digest, -1) == '!' and '!' or '')
  moved[#moved + 1] = message.seq
  count = count + 1
end

-- Writes fields of the thread, counters and expiry; rows follow their messages. Returns whether vectors are due.
local function finish(fields)
  if #changed > 0 then redis.call('HINCRBY', KEYS[1], 'edits', 1) end
  change_rows(changed, moved)
  version = version + 1
  add(fields, {'count', whole(count), 'version', whole(version)})
  if ttl then add(fields, {'ttl', whole(ttl)}) end
  redis.call('HSET', KEYS[1], unpack(fields)) -- one HSET: Search indexes the thread again after each
  return expire(ttl)
end
