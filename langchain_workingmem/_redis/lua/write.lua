-- Writes messages in one atomic step.
-- ARGV  1 {user, thread, ttl, settings, messages, ...}; then for each message its body (JSON without the first brace), for each chunk its
--       text and vector, and its media
--   messages   {id, words, tokens, writer, role, name, labels, metadata, size, chunks, media, at, is_superseded}; with `seq` it replaces
--              the stored one, with `facts` it only gives new vectors to that one, if it has not changed
--   settings   digest of the embedding settings; '' without vectors
--   version    of the thread that was read: {stale} if it is another one      created_at  the same for the thread itself: {gone}
--   asked      id of a message that must be stored: {gone} if it was deleted meanwhile; without `back` {stale} if it is superseded
--   exists     the thread must exist
--   drop       ranges of seqs to supersede      back      seqs to bring back      aliases   other ids, each with the stored one
--   deleted    ids that imports do not store      fields    of a new thread
--   again      ids that may be stored a second time: deleted ones (true), or the seqs of older messages of the id
--   put        messages whose ids are stored are replaced where they differ, and brought back; `edit`: all must be stored, else
--              {refused = 'message', missing}, and none is brought back
-- Reply {new (indexes), count, version, seqs, is_new, bare (brought back), is_left, renew, is_titled}; {known}: index, facts ('': deleted)
--       and whether it is current of each message without `seq` whose id is stored or was deleted: without `put` nothing is written;
--       {is_same}: nothing had to be written
local fields_of = {'user', 'next_seq', 'last_at', 'upto', 'created_at', 'title', 'ttl', 'vectors_until', 'next_number', 'updated_at'}
local thread = {}
for at, value in ipairs(redis.call('HMGET', KEYS[1], unpack(fields_of))) do thread[fields_of[at]] = value or nil end
local no = refusal(head.user, thread.user)
local is_new = not thread.user
if is_new and head.exists then no = no or 'thread' end
if no then return {cjson.encode({refused = no})} end
if head.created_at and head.created_at ~= thread.created_at then return {cjson.encode({gone = true})} end
if head.version and head.version ~= version then return {cjson.encode({stale = true})} end
local asked = head.asked and locate(redis.call('HGET', KEYS[5], head.asked))[1]
if head.asked and not asked then return {cjson.encode({gone = true})} end
if asked and not head.back and redis.call('ZCOUNT', KEYS[2], asked, asked) == 0 then return {cjson.encode({stale = true})} end

-- Which messages are stored already, or were deleted: then nothing is written, and the caller says what it means.
local known = {}
for start = 1, #head.messages, 1000 do
  local ids = {}
  for at = start, math.min(start + 999, #head.messages) do ids[#ids + 1] = head.messages[at].id end
  for at, value in ipairs(redis.call('HMGET', KEYS[5], unpack(ids))) do
    local message = head.messages[start + at - 1]
    local seq = locate(value)[1]
    if head.edit and not seq then return {cjson.encode({refused = 'message', missing = message.id})} end
    if head.put and seq then
      message.seq, message.is_put = seq, true
    elseif value and not head.put and not message.seq and not message.facts and not (head.again and head.again[message.id]) then
      local facts, is_current = facts_at(seq or -1)
      known[#known + 1] = {start + at - 2, facts or '', is_current}
    end
  end
end
if #known > 0 then return {cjson.encode({known = known})} end

local owner, ttl = thread.user or head.user, head.ttl or tonumber(thread.ttl)
local next_seq, last_at, upto = tonumber(thread.next_seq or 0), tonumber(thread.last_at or 0), tonumber(thread.upto or 0)
local next_number = tonumber(thread.next_number or 0)
if is_new then -- above what is dropped of an older thread of this id, whose vectors have the same keys
  next_seq = (redis.call('ZRANGE', KEYS[7], -1, -1, 'WITHSCORES')[2] or -1) + 1
end
-- The branch: what the list has left behind goes, what it has gone back to comes.
local dropped, bare = 0, {}
for _, range in ipairs(head.drop or {}) do
  for _, facts in ipairs(redis.call('ZRANGE', KEYS[2], whole(range[1]), whole(range[2]), 'BYSCORE')) do
    supersede(facts)
    dropped = dropped + 1
  end
end
for _, seq in ipairs(head.back or {}) do
  local facts = redis.call('ZRANGE', KEYS[3], seq, seq, 'BYSCORE')[1]
  if facts then bring_back(facts) bare[#bare + 1] = seq end
  while facts do -- with the tool traffic that led to it, which a client may not send
    seq = seq - 1
    facts = redis.call('ZRANGE', KEYS[3], seq, '(' .. whole(seq - seq % STRIDE), 'BYSCORE', 'REV', 'LIMIT', 0, 1)[1]
    if facts then
      seq = tonumber(string.match(facts, '^%d+'))
      bring_back(facts)
      bare[#bare + 1] = seq
    end
  end
end

local argument, seqs, new, changed = 2, {}, {}, dropped > 0 or #bare > 0
local order, superseded, bodies, names = {}, {}, {}, {} -- of new messages, which are written together
local function flush()
  if #order > 0 then redis.call('ZADD', KEYS[2], unpack(order)) end
  if #superseded > 0 then redis.call('ZADD', KEYS[3], unpack(superseded)) end
  if #bodies > 0 then redis.call('HSET', KEYS[4], unpack(bodies)) redis.call('HSET', KEYS[5], unpack(names)) end
  order, superseded, bodies, names = {}, {}, {}, {}
end
local expiry = ttl and whole(math.min(now / 1000 + 2 * ttl, LATEST))

-- Writes the vectors and media of a message, which stand behind its body; returns what facts say of the vectors.
local function write_parts(message, seq, at)
  for chunk = 0, (message.is_superseded and 0 or message.chunks) - 1 do
    local key = KEYS[8] .. seq .. ':' .. chunk .. ':' .. message.size
    redis.call('HSET', key, 'user', owner, 'thread', head.thread, 'message', message.id, 'role', message.role, 'name', message.name,
      'labels', message.labels, 'created_at', at, 'text', ARGV[argument + 1 + 2 * chunk], 'vector', ARGV[argument + 2 + 2 * chunk])
    if message.metadata then redis.call('HSET', key, 'metadata', message.metadata) end
    -- a thread that has expired may have left vectors under the keys of a new one
    if expiry then redis.call('PEXPIREAT', key, expiry) elseif is_new then redis.call('PERSIST', key) end
  end
  local first = argument + 2 * message.chunks
  for number = 1, message.media do redis.call('HSET', KEYS[6], seq .. ':' .. number - 1, ARGV[first + number]) end
  return head.settings ~= '' and not message.is_superseded and head.settings .. '/' .. message.size .. '/' .. message.chunks or ''
end

-- Replaces a stored message where it differs, or only its vectors. It keeps its seq and its time.
local function replace(message, body)
  local seq = message.seq or string.match(message.facts, '^%d+')
  local facts, is_current = facts_at(seq)
  if not facts or (message.facts and message.facts ~= facts) then return -1 end
  if message.is_put and not is_current and not head.edit then
    bring_back(facts)
    is_current, changed = true, true
  end
  local _, words, tokens, old_upto, writer, vectors, id = string.match(facts, FACTS)
  local stored = redis.call('HGET', KEYS[4], seq) or ''
  local at, number, old_body = string.match(stored, '^[-!]?{"at":(%d+),"number":(%d+),(.*)$')
  at, number = at or whole(math.max(now, last_at + 1)), number or 0
  local is_same = message.facts or message.is_put and old_body == body and not (head.edit and string.sub(words, -1) == '!')
  local has_vectors = message.chunks == 0 or head.settings == '' or not is_current or string.match(vectors, '^%x*') == head.settings
  if message.is_put and is_same and has_vectors then return tonumber(seq) end
  changed, message.id, message.is_superseded = true, id, not is_current
  redis.call('ZREM', is_current and KEYS[2] or KEYS[3], facts)
  delete_vectors(facts)
  -- only a turn knows whether an answer is structured
  if is_same or message.words == '' and string.sub(words, 1, 2) == 'as' then message.words = words end
  if is_same then
    message.tokens = tokens
  else
    gone[#gone + 1] = seq
    local part = 0
    while redis.call('HDEL', KEYS[6], seq .. ':' .. part) == 1 do part = part + 1 end
    redis.call('HSET', KEYS[4], seq, (is_current and '' or '-') .. '{"at":' .. at .. ',"number":' .. number .. ',' .. body)
    if words ~= message.words then forget_title(seq) end
  end
  vectors = write_parts(message, seq, at)
  redis.call('ZADD', is_current and KEYS[2] or KEYS[3], seq,
    table.concat({seq, message.words, whole(message.tokens), old_upto, writer, vectors, id}, ':'))
  return tonumber(seq)
end

-- The messages.
for number, message in ipairs(head.messages) do
  local body = ARGV[argument]
  if message.seq or message.facts then
    seqs[number] = replace(message, body)
  else
    local number_of = message.words == '' and next_seq or math.ceil(next_seq / STRIDE) * STRIDE
    local seq = whole(number_of)
    next_seq, last_at = number_of + 1, math.max(message.at or now, last_at + 1) -- times rise strictly
    if message.words ~= '' then upto = upto + message.tokens end
    local rows, vectors = message.is_superseded and superseded or order, write_parts(message, seq, whole(last_at))
    rows[#rows + 1] = seq
    rows[#rows + 1] = table.concat({seq, message.words, whole(message.tokens), whole(upto), message.writer, vectors, message.id}, ':')
    bodies[#bodies + 1] = seq
    bodies[#bodies + 1] = (message.is_superseded and '-' or string.sub(message.words, -1) == '!' and '!' or '')
      .. '{"at":' .. whole(last_at) .. ',"number":' .. whole(next_number) .. ',' .. body
    next_number = next_number + 1
    local older = head.again and head.again[message.id]
    names[#names + 1] = message.id
    names[#names + 1] = type(older) ~= 'string' and seq or message.is_superseded and older .. ' ' .. seq or seq .. ' ' .. older
    if not message.is_superseded then count = count + 1 end
    seqs[number], new[#new + 1], changed = number_of, number - 1, true
    if #bodies > 900 then flush() end
  end
  argument = argument + 1 + 2 * message.chunks + message.media
end
flush()
if not changed and not head.aliases and not head.fields then
  return {cjson.encode({is_same = true, count = count, version = version, seqs = seqs})}
end
for alias, id in pairs(head.aliases or {}) do redis.call('HSETNX', KEYS[5], alias, '=' .. id) end
for _, id in ipairs(head.deleted or {}) do redis.call('HSETNX', KEYS[5], id, 'x') end

local at = whole(math.max(now, last_at))
local is_heal = #head.messages > 0 -- new vectors alone are no change that listings show
for _, message in ipairs(head.messages) do is_heal = is_heal and message.facts end
local fields = {'updated_at', is_heal and thread.updated_at or at, 'next_seq', whole(next_seq), 'last_at', whole(last_at), 'upto', whole(upto),
  'next_number', whole(next_number)}
if is_new then
  for _, value in ipairs({'user', owner, 'layout', LAYOUT, 'created_at', at, 'labels', ''}) do
    fields[#fields + 1] = value
  end
  for field, value in pairs(head.fields or {}) do fields[#fields + 1], fields[#fields + 2] = field, value end
end
if ttl then fields[#fields + 1], fields[#fields + 2] = 'ttl', whole(ttl) end
if ttl and is_new then fields[#fields + 1], fields[#fields + 2] = 'vectors_until', expiry end
finish(fields, ttl)
local _, is_left = sweep(dropped > 0 and 500 or 0)
return {cjson.encode({new = #new > 0 and new or nil, count = count, version = version, seqs = seqs, is_new = is_new or nil,
  bare = #bare > 0 and bare or nil, is_left = is_left or nil, is_titled = thread.title and redis.call('HEXISTS', KEYS[1], 'title') == 1,
  renew = ttl and not is_new and tonumber(thread.vectors_until or 0) < now / 1000 + 1.5 * ttl or nil})}
