-- Writes messages in one atomic step.
-- ARGV  1 {user, thread, ttl, ...}; then of each message body (JSON without first brace), chunks (text, vector), media.
--   messages   {id, digest, tokens, writer, role, labels, metadata, length, author, chunks, media, at, is_superseded};
--              with `seq` it replaces the stored one, with `facts` it only gives new vectors to that one, if unchanged
--   settings   digest of the embedding settings; '' without vectors
--   version, created_at  of the thread that was read: {stale} if it has changed, {is_deleted} if it is another one
--   question   id of a message that must be stored: {is_deleted}, or {stale} if it is superseded, unless the caller has
--              `compared` its list with what is stored
--   exists     the thread must exist
--   drop       ranges of seqs to supersede, `truncate` what is behind `question`; `bring_back` seqs to make current
--   imports    the thread is as old as its messages say; `deleted` ids that it does not store
--   aliases    other ids, each with the stored one
--   again      ids that may be stored a second time, with their newest seq: of edited questions; -1 for deleted ones
--   upsert     messages whose ids are stored are replaced where they differ, and brought back
--   edit       all must be stored, else {refused = 'message', missing}, and none is brought back
-- Reply {new (indexes), count, version, seqs (-1: not stored), superseded, is_new, without_vectors (seqs), is_left,
--        renew, is_titled}; or {known}: indexes of ids that are stored or deleted; or {is_same}: nothing was written
local reason, is_new = refusal(head.user, owner), not owner
if reason or is_new and head.exists then return {cjson.encode({refused = reason or 'thread'})} end
if head.created_at and head.created_at ~= created_at then return {cjson.encode({is_deleted = true})} end
if head.version and head.version ~= version then return {cjson.encode({stale = true})} end
if head.question then
  local question = message_at(locate(redis.call('HGET', KEYS[5], head.question))[1] or -1)
  if not question then return {cjson.encode({is_deleted = true})} end
  if not question.is_current and not head.compared then return {cjson.encode({stale = true})} end
  if head.truncate then head.drop = {{question.seq + 1, 2 ^ 53}} end
end

-- Which messages are stored already, or were deleted: then nothing is written, and the caller says what it means.
local ids, known = {}, {}
for at, message in ipairs(head.messages) do ids[at] = message.id end
for at, value in ipairs(values_of(KEYS[5], ids)) do
  local message, found = head.messages[at], value and locate(value)
  if value and head.upsert then
    message.seq = found[1]
  elseif value and head.again and head.again[message.id] == math.max(-1, unpack(found)) then
    message.older = found[1] and table.concat(found, ' ')
  elseif value and not message.seq and not message.facts then
    known[#known + 1] = at - 1
  end
  if head.edit and not message.seq then return {cjson.encode({refused = 'message', missing = message.id})} end
end
if #known > 0 then return {cjson.encode({known = known})} end

-- The branch: what the list has left behind goes, what it has gone back to comes.
local superseded, without_vectors = 0, {}
for _, range in ipairs(head.drop or {}) do
  local some = redis.call('ZRANGE', KEYS[2], whole(range[1]), whole(range[2]), 'BYSCORE', 'WITHSCORES')
  for at = 2, #some, 2 do supersede(message_at(some[at])) end
  superseded = superseded + #some / 2
end
for _, seq in ipairs(head.bring_back or {}) do -- with the tool traffic that led to it, which a client may not send
  local low = '(' .. whole(seq - 1 - (seq - 1) % STRIDE)
  local some = redis.call('ZRANGE', KEYS[3], low, whole(seq), 'BYSCORE', 'WITHSCORES')
  for at = 2, #some, 2 do
    bring_back(message_at(some[at]))
    without_vectors[#without_vectors + 1] = tonumber(some[at])
  end
end
local has_changed = superseded + #without_vectors > 0

if is_new then owner, next_seq = head.user, first_seq() end
local vectors_until = ttl and expiry(2 * ttl)
local argument, seqs, new = 2, {}, {}

-- Writes the vectors and media of a message, which stand behind its body; returns what facts say of the vectors.
local function write_parts(message, seq, id, at, is_current)
  for chunk = 0, (is_current and message.chunks or 0) - 1 do
    local key = KEYS[8] .. table.concat({seq, chunk, message.length, message.author}, ':')
    local text = argument + 1 + 2 * chunk -- where it stands in ARGV; the vector follows
    local fields = {'user', owner, 'thread', head.thread, 'message', id, 'role', message.role, 'created_at', at,
      'text', ARGV[text], 'vector', ARGV[text + 1]}
    if message.metadata then add(fields, {'labels', message.labels, 'metadata', message.metadata}) end
    redis.call('HSET', key, unpack(fields))
    if ttl then redis.call('PEXPIREAT', key, vectors_until) end
  end
  local first = argument + 2 * message.chunks
  for number = 1, message.media or 0 do redis.call('HSET', KEYS[6], seq .. ':' .. number - 1, ARGV[first + number]) end
  if not is_current or head.settings == '' then return '' end
  return table.concat({head.settings, message.chunks, message.length, message.author}, '/')
end

local function body_of(prefix, at, number, body) return table.concat({prefix, '{"at":', at, ',"number":', number, ',', body}) end

-- Replaces a stored message where it differs, or only its vectors. It keeps its seq and its time.
local function replace(message, body)
  local old = message_at(message.seq or string.match(message.facts, '^%d+'))
  if not old or (message.facts and message.facts ~= old.facts) then return -1 end
  if head.upsert and not old.is_current and not head.edit then
    bring_back(old)
    has_changed = true
  end
  local stored, is_current = redis.call('HGET', KEYS[4], old.seq) or '', old.is_current
  local at, number, old_body = string.match(stored, '^[-!]?{"at":(%d+),"number":(%d+),(.*)$')
  at, number = at or whole(math.max(now, last_at + 1)), number or 0
  local is_refused = head.edit and string.sub(old.digest, -1) == '!'
  -- only a turn knows that an answer is structured: any other caller sends it as tool traffic
  local of_traffic = string.sub(old.digest, 1, 2) == 'as' and string.gsub(old_body or '', '"kind":"a"', '"kind":""', 1)
  local is_same = message.facts or head.upsert and (old_body == body or of_traffic == body) and not is_refused
  local has_vectors = message.chunks == 0 or head.settings == '' or head.settings == string.match(old.vectors, '^%x*')
  if head.upsert and is_same and (has_vectors or not is_current) then return tonumber(old.seq) end
  has_changed = true
  delete_vectors(old.facts)
  if not is_same then
    local digest = message.digest == '' and string.match(old.digest, '^as[^!]*') or message.digest
    if digest ~= old.digest then forget_title(old.seq) end
    old.digest, old.tokens, changed[#changed + 1] = digest, message.tokens, old.seq
    delete_media(old.seq)
    redis.call('HSET', KEYS[4], old.seq, body_of(is_current and '' or '-', at, number, body))
  end
  old.vectors = write_parts(message, old.seq, old.id, at, is_current)
  write_facts(old, is_current)
  return tonumber(old.seq)
end

-- Of new messages, which are written together: one by one they take 8 % more.
local current, others, bodies, names = {}, {}, {}, {}
local is_heal = head.messages[1] and head.messages[1].facts -- new vectors alone are no change that listings show
for at, message in ipairs(head.messages) do
  local body, id, digest, older = ARGV[argument], message.id, message.digest, message.older
  if message.seq or message.facts then
    seqs[at] = replace(message, body)
  else
    local number, is_current = next_seq, not message.is_superseded
    if digest ~= '' then number, total_tokens = math.ceil(next_seq / STRIDE) * STRIDE, total_tokens + message.tokens end
    next_seq, last_at, has_changed = number + 1, math.max(message.at or now, last_at + 1), true -- times rise strictly
    seqs[at], new[#new + 1] = number, at - 1
    local seq, time, set = whole(number), whole(last_at), is_current and current or others
    local vectors = write_parts(message, seq, id, time, is_current)
    local facts = {seq, digest, message.tokens, whole(total_tokens), message.writer, vectors, id}
    set[#set + 1], set[#set + 2] = seq, table.concat(facts, ':')
    local prefix = is_current and (string.sub(digest, -1) == '!' and '!' or '') or '-'
    bodies[#bodies + 1], bodies[#bodies + 2] = seq, body_of(prefix, time, whole(next_number), body)
    if older then older = is_current and seq .. ' ' .. older or older .. ' ' .. seq end -- the one that counts first
    -- over 64 bytes: Redis makes a hash table; in a packed list it would read from the first id on
    if count == 0 and #names == 0 then names = {'', string.rep(' ', 65)} end
    names[#names + 1], names[#names + 2] = id, older or seq
    next_number, count = next_number + 1, count + (is_current and 1 or 0)
  end
  argument = argument + 1 + 2 * message.chunks + (message.media or 0)
end
local function put(command, key, values)
  for first = 1, #values, 1000 do redis.call(command, key, unpack(values, first, math.min(first + 999, #values))) end
end
put('HSET', KEYS[4], bodies)
put('HSET', KEYS[5], names)
put('ZADD', KEYS[2], current)
put('ZADD', KEYS[3], others)
if not (has_changed or head.aliases or head.deleted) then return {cjson.encode({is_same = true, version = version, seqs = seqs})} end
for alias, id in pairs(head.aliases or {}) do redis.call('HSETNX', KEYS[5], alias, '=' .. id) end
for _, id in ipairs(head.deleted or {}) do redis.call('HSETNX', KEYS[5], id, 'x') end

local at = whole(math.max(now, last_at))
local updated_at = (is_heal or head.imports) and redis.call('HGET', KEYS[1], 'updated_at')
if head.imports then updated_at = whole(math.max(updated_at or 0, last_at)) end
local fields = {'updated_at', updated_at or at, 'next_seq', whole(next_seq), 'last_at', whole(last_at), 'total_tokens',
  whole(total_tokens), 'next_number', whole(next_number)}
if is_new then add(fields, {'user', owner, 'layout', LAYOUT, 'created_at', at, 'edits', at, 'labels', ''}) end
if is_new and ttl then add(fields, {'vectors_until', vectors_until}) end
local renew = finish(fields)
local _, is_left = sweep(superseded > 0 and 500 or 0)
return {cjson.encode({new = new, count = count, version = version, seqs = seqs, is_new = is_new or nil,
  superseded = superseded > 0 and superseded or nil, without_vectors = without_vectors[1] and without_vectors or nil,
  is_left = is_left or nil, renew = renew, is_titled = title and true or nil})}
