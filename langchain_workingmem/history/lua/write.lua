-- ARGV  mode, resource (or ''), thread as a tag, model, ttl in ms (or '': as it is), source, anchor, four times a number and as
--       many ids (left behind, taken up again, marked as those of the state, kept in their old version), a number of aliases
--       and for each alias and id, then for each message
--       id, body (its JSON without the first brace), role, name, labels, size, words, weight, number of chunks, (text, vector) ...
-- Modes append: insert what is new, replace what differs, leave what is equal
--       turn:   the same, but messages are recognised by what they say, and what they contradict is left behind
--       update: replace existing messages; WMNOMESSAGE <number, from 0>, and nothing written, when one is missing
--       heal:   give new vectors to messages that are still what they were when they were read
-- `model` is empty when this call brings no vectors. `source` is what `state` becomes: '', t, or s for a state, which is that of
-- the message `anchor`, or begins here.
-- Reply number of messages that were new, number in the thread, 1 when it has a title, updated_at, then the id under which each
--       message is stored, the ids of those that are taken up again, 1 when slices are left to be done; WMOWNER, WMNOTHREAD.
local mode, resource, tag, model, ttl, source, anchor = unpack(ARGV, 1, 7)
local refusal = wrong_owner(resource)
if refusal then return refusal end
local thread = redis.call('HMGET', KEYS[1], 'resource', 'next_seq', 'last_at', 'count', 'title', 'updated_at')
if not thread[1] and mode ~= 'append' and mode ~= 'turn' then
  return redis.error_reply('WMNOTHREAD')
end
check_key_types()
local owner = thread[1] or resource
local next_seq = tonumber(thread[2] or first_seq())
local last_at = tonumber(thread[3] or 0)
local count = tonumber(thread[4] or 0)
local present = now()

local place = 8
local function listed(width)
  local found, number = {}, tonumber(ARGV[place])
  for at = place + 1, place + number * width do found[#found + 1] = ARGV[at] end
  place = place + 1 + number * width
  return found
end
local left, back, marks, versions, aliases = listed(1), listed(1), listed(1), listed(1), listed(2)

local entries = {}
while place <= #ARGV do
  entries[#entries + 1] = {id = ARGV[place], words = ARGV[place + 6], place = place}
  place = place + 9 + 2 * ARGV[place + 8]
end

if mode == 'update' then
  for number, entry in ipairs(entries) do
    if redis.call('HEXISTS', KEYS[3], entry.id) == 0 then
      return redis.error_reply('WMNOMESSAGE ' .. (number - 1))
    end
  end
end

local changed = false
local revived = {}
local function follow(left, back)
  local gone = supersede_messages(left)
  if gone > 0 then
    count = count - gone
    changed = true
  end
  for _, id in ipairs(back) do
    local is_back, main = restore_message(id)
    count = count + is_back
    changed = changed or is_back == 1 or main ~= id
    revived[#revived + 1] = main
  end
end
follow(left, back)

-- a client that sends its conversation again: the same list, longer, shorter, or on another branch
if mode == 'turn' and thread[1] then
  locate(entries)
  local answers, questions, known, asked, is_new = 0, 0, nil, nil, false
  local is_turn = true -- one question and what follows: a new turn, whatever it says
  for _, entry in ipairs(entries) do
    local kind = string.sub(entry.words, 1, 1)
    if (kind == 'q' and answers > 0) or (kind == 'a' and questions == 0) then is_turn = false end
    if kind == 'q' then
      questions = questions + 1
      asked = entry
    end
    if kind == 'a' then answers = answers + 1 end
    known = known or entry.seq
    is_new = is_new or (kind ~= '' and not entry.seq)
  end
  if not is_turn then
    local found, notes_count = recognise(entries, 1, #entries)
    local anchor
    for _, entry in ipairs(entries) do anchor = anchor or (entry.seq and entry) end
    if anchor then
      notes_count = notes_count or select(2, said_and_state(anchor.known)) == ''
      local left, _, back = compare_list(entries, 1, #entries, notes_count)
      follow(left, back)
      -- tool traffic that is sent again between messages of the thread, under ids of its own, is there already
      local last, between = nil, {}
      for _, entry in ipairs(entries) do
        if entry.words == '' then
          if not entry.seq then between[#between + 1] = entry end
        else
          for _, one in ipairs(entry.seq and last and between or {}) do one.is_copy = true end
          last, between = entry.seq, {}
        end
      end
    end
  elseif asked and asked.seq and answers > 0 and is_new then
    -- a question that is answered anew leaves its own turn behind; what others have said since is theirs
    local kept, left = {}, {}
    for _, entry in ipairs(entries) do
      if entry.known then kept[entry.known] = true end
    end
    for _, id in ipairs(redis.call('ZRANGE', KEYS[2], '(' .. asked.seq, '+inf', 'BYSCORE', 'LIMIT', 0, 500)) do
      if not kept[id] and select(2, said_and_state(id)) == 't' .. as_integer(asked.seq) then left[#left + 1] = id end
    end
    follow(left, {})
  end
end

-- the version of a question that was edited under its id
local is_edited = {}
for _, id in ipairs(versions) do is_edited[id] = true end
for _, entry in ipairs(entries) do
  local seq = is_edited[entry.id] and redis.call('ZSCORE', KEYS[2], entry.id)
  if seq and string.match(said_and_state(entry.id), '^%w*') ~= entry.words then -- else it was written before, and the reply was lost
    keep_version(entry.id, seq, redis.call('HGET', KEYS[3], entry.id))
  end
end

-- the state that the messages belong to
local lineage
if source == 's' then
  local value = anchor ~= '' and redis.call('HGET', KEYS[3], anchor)
  local _, _, _, _, _, state = string.match(value or '', HEADER)
  if tonumber(state) then
    lineage = state
  else
    local seq = value and redis.call('ZSCORE', KEYS[2], anchor)
    lineage = seq or as_integer(next_seq)
  end
  for _, id in ipairs(marks) do
    local old = redis.call('HGET', KEYS[3], id)
    if old then
      local at, old_model, size, chunks, said, _, rest = string.match(old, HEADER)
      redis.call('HSET', KEYS[3], id, header(at, old_model, size, chunks, said, lineage) .. string.sub(old, rest))
    end
  end
end

local question = source == 't' and anchor ~= '' and redis.call('ZSCORE', KEYS[2], anchor) or nil
local upto = tokens_said()
local inserted = 0
local stored = {}
local may_revive = (mode == 'append' or mode == 'turn') and redis.call('EXISTS', KEYS[7]) == 1
-- Writes a message, and returns the id under which it is stored.
local function save(entry)
  local id, model = entry.main or entry.known or entry.id, model
  local _, body, role, name, labels, size, words, weight = unpack(ARGV, entry.place, entry.place + 7)
  local chunks = tonumber(ARGV[entry.place + 8])
  if may_revive then
    local is_back
    is_back, id = restore_message(id)
    if is_back == 1 then
      count = count + 1
      changed = true
    end
  end
  local seq, is_behind = redis.call('ZSCORE', KEYS[2], id), false
  if not seq and mode == 'update' then
    seq, is_behind = redis.call('ZSCORE', KEYS[7], id), true
    model, chunks = '', 0 -- what was left behind has no vectors
  end
  local stored_at, said, state
  local write = false
  if seq then
    local old = redis.call('HGET', KEYS[3], id)
    local at, old_model, old_size, old_chunks, old_said, old_state, rest = string.match(old, HEADER)
    local is_copy = mode == 'turn' and id ~= entry.id -- the thread has more of it than the client sends
    if is_copy then body = string.sub(old, rest) end
    local same = is_copy or string.sub(old, rest) == body
    state = old_state
    if lineage and not tonumber(old_state) then state = lineage end
    if mode == 'turn' and old_state == '' then state = 't' end
    if string.sub(words, 1, 1) == 'q' then question = seq end
    said = old_said
    if mode ~= 'heal' and not is_copy then
      local old_words, old_weight, old_upto = string.match(old_said, '^(%w*)/(%d+)/(%d+)')
      if old_words ~= words or (string.sub(old_said, -1) == '!' and mode ~= 'update') then
        said = words .. '/' .. weight .. '/' .. (words ~= '' and old_words == '' and as_integer(upto + weight) or old_upto)
      end
    end
    if same then
      write = model ~= '' and (old_model ~= model or mode == 'heal')
    else
      write = mode ~= 'heal'
      changed = changed or write
    end
    stored_at = at
    if write then
      delete_vectors(seq, old)
    elseif state ~= old_state or said ~= old_said then
      redis.call('HSET', KEYS[3], id,
        header(at, old_model, old_size, old_chunks, said, state) .. string.sub(old, rest))
    end
    if said ~= old_said then
      remove_said(seq, old_said)
      if not is_behind then add_said(seq, said) end
      for _, version in ipairs(redis.call('ZRANGE', KEYS[7], '(' .. as_integer(seq - 1), '(' .. seq, 'BYSCORE')) do
        if string.match(said_and_state(version), '^%w*') == words then -- the words of an older version are those of now
          redis.call('ZREM', KEYS[7], version)
          redis.call('HDEL', KEYS[3], version)
        end
      end
      if string.sub(old_said, -1) == '!' then redis.call('HINCRBY', KEYS[1], 'refused', -1) end
    end
  elseif mode ~= 'heal' then
    write = true
    changed = true
    seq = as_integer(next_seq)
    next_seq = next_seq + 1
    last_at = math.max(present, last_at + 1) -- strictly rising, even when the clock jumps back
    stored_at = as_integer(last_at)
    inserted = inserted + 1
    count = count + 1
    upto = upto + weight
    said = words == '' and '/0/0' or words .. '/' .. weight .. '/' .. as_integer(upto)
    if string.sub(words, 1, 1) == 'q' then question = seq end
    -- of which question's turn it is a part
    state = lineage or (source == 't' and question and question ~= seq and 't' .. question) or source
    redis.call('ZADD', KEYS[2], seq, id)
    add_said(seq, said)
  end
  if write then
    redis.call('HSET', KEYS[3], id, header(stored_at, model, size, chunks, said, state) .. body)
    for chunk = 0, chunks - 1 do
      local text, vector = ARGV[entry.place + 9 + 2 * chunk], ARGV[entry.place + 10 + 2 * chunk]
      local key = vector_key(seq, chunk, size)
      redis.call('HSET', key, 'resource', owner, 'thread', tag, 'message', id, 'role', role, 'name', name,
        'labels', labels, 'created_at', stored_at, 'text', text, 'vector', vector)
      expire_vector(key, ttl ~= '' and ttl)
    end
  end
  return id
end
for number, entry in ipairs(entries) do
  stored[number] = entry.is_copy and entry.id or save(entry)
end
for at = 1, #aliases, 2 do
  local seq = redis.call('ZSCORE', KEYS[2], aliases[at + 1])
  if seq then redis.call('ZADD', KEYS[8], seq, aliases[at]) end
end

local updated_at = thread[6] or ''
if changed then
  updated_at = as_integer(math.max(present, last_at))
  if not thread[1] then
    redis.call('HSET', KEYS[1], 'resource', owner, 'created_at', updated_at, 'labels', '')
    if redis.call('EXISTS', KEYS[9]) == 1 then redis.call('HSET', KEYS[1], 'trash', 1) end
  end
  redis.call('HSET', KEYS[1], 'updated_at', updated_at, 'next_seq', as_integer(next_seq), 'last_at', as_integer(last_at),
    'count', count)
end
local unfinished = 0
if thread[1] or changed then
  if ttl ~= '' then redis.call('HSET', KEYS[1], 'ttl', ttl) end
  unfinished = renew_ttl()
end
return {inserted, count, thread[5] and 1 or 0, updated_at, stored, revived, unfinished}
