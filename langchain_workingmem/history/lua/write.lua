-- Saves messages in one atomic step. KEYS are those of header.lua.
-- ARGV  mode, resource (or ''), thread as a tag, model, ttl in ms (or '': unchanged), scope of the observer (t, r, or '' without
--       one), tokens at which it is due, part, source, anchor, ranges of messages that memory has taken out of the list; four times a
--       number and as many ids: left behind, taken up again, claimed by the state, to be kept in their older version; a number
--       of aliases, and for each alias and id; then for each message id, body (its JSON without the first brace), role, name,
--       labels, size, words, weight, number of chunks, (text, vector) ...
-- Modes append: insert new messages, replace different ones, leave equal ones
--       turn:   the same, but recognise messages by their words, and supersede what contradicts the list
--       update: replace existing messages; if one is missing, write nothing and return WMNOMESSAGE <number, from 0>
--       heal:   give new vectors to messages that have not changed since they were read
-- `model` is empty without vectors. `source` becomes `state`: '', t, or for s the state of the message `anchor`, or a new one.
-- `part` is '', or 'rest': the end of a list, 'older': a batch before it, 'last': the end after all batches. The field `is_begun` of
-- the thread stands from the first batch to the end, so that a repeat begins anew.
-- Errors WMNEW: the caller holds earlier messages, and the thread has none; WMOLDER: the list begins before the thread; WMOWNER,
--       WMNOTHREAD. Nothing is written then.
-- Reply number of new messages, number in the thread, 1 if it has a title, updated_at, the stored ids of the messages, the ids that
--       are taken up again, what renew_ttl returns, 1 if the observer is due, 1 if the log of the resource is to be told of
--       changes, plus 2 if observations lack documents of recall; coverage_version.
local mode, resource, tag, model, ttl, scope, due_at, part, source, anchor, removed = unpack(ARGV, 1, 11)
local refusal = wrong_owner(resource)
if refusal then return refusal end
local thread = redis.call('HMGET', KEYS[1], 'resource', 'next_seq', 'last_at', 'count', 'title', 'updated_at',
  'pending', 'is_begun')
if not thread[1] and mode ~= 'append' and mode ~= 'turn' then
  return redis.error_reply('WMNOTHREAD')
end
if part == 'rest' then
  local is_new = (thread[4] or '0') == '0' and redis.call('EXISTS', KEYS[7]) == 0
  if is_new or thread[8] then return redis.error_reply('WMNEW') end
end
check_key_types()
local owner = thread[1] or resource
local next_seq = tonumber(thread[2] or first_seq())
local last_at = tonumber(thread[3] or 0)
local count = tonumber(thread[4] or 0)
local present = now()

local next_argument = 12
local function listed(width)
  local found, last = {}, next_argument + ARGV[next_argument] * width
  for at = next_argument + 1, last do found[#found + 1] = ARGV[at] end
  next_argument = last + 1
  return found
end
local left, back, claimed, versions, aliases = listed(1), listed(1), listed(1), listed(1), listed(2)

local entries = {}
while next_argument <= #ARGV do
  local at = next_argument
  entries[#entries + 1] = {id = ARGV[at], words = ARGV[at + 6], argument = at}
  next_argument = at + 9 + 2 * ARGV[at + 8]
end

if mode == 'update' then
  for number, entry in ipairs(entries) do
    if redis.call('HEXISTS', KEYS[3], entry.id) == 0 then
      return redis.error_reply('WMNOMESSAGE ' .. (number - 1))
    end
  end
end

-- a list is one turn if questions come first, then answers: even with the words of an older turn, it is a new one
local is_turn = true
if mode == 'turn' then
  local is_asked, is_answered = false, false
  for _, entry in ipairs(entries) do
    local kind = is_data(entry.words) and '' or string.sub(entry.words, 1, 1)
    if (kind == 'q' and is_answered) or (kind == 'a' and not is_asked) then is_turn = false end
    is_asked, is_answered = is_asked or kind == 'q', is_answered or kind == 'a'
  end
end

-- Whether the list begins with messages that are older than the thread, which does not grow there. What is appended by id
-- counts as a conversation only if there are answers before the thread.
local function is_older()
  local begin = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  local words, copies, may_be = begin and not is_turn and words_of(begin), {}, false
  for at, entry in ipairs(entries) do
    copies[at] = {id = entry.id, words = entry.words}
    may_be = may_be or (at > 1 and (entry.id == begin or entry.words == words))
  end
  if not may_be then return false end
  locate(copies)
  if not is_turn then recognise(copies, 1, #copies) end
  local has_question, has_answer, number, is_sure = false, false, nil, false
  for _, entry in ipairs(copies) do
    if number and entry.seq and entry.words ~= '' then number = number + 1 end
    if not number and entry.known == begin then number, is_sure = 1, entry.id == begin end
    if not number and not entry.seq and not is_data(entry.words) then
      local kind = string.sub(entry.words, 1, 1)
      has_question, has_answer = has_question or kind == 'q', has_answer or kind == 'a'
    end
  end
  -- one equal message is not enough to know the thread by, as people say "hi" more than once
  local is_known = is_sure or (number or 0) > 1 or (number == 1 and redis.call('ZCARD', KEYS[5]) == 1)
  return is_known and has_question and (has_answer or mode == 'turn')
end
if #entries > 1 and thread[2] and (mode == 'append' or not is_turn) and is_older() then
  return redis.error_reply('WMOLDER')
end

local changed, is_moved, revived = false, false, {} -- is_moved: another branch is the current one
local function follow(left, back)
  if removed ~= '' then left = without_removed(left, parse_ranges(removed), {}) end
  local gone = supersede_messages(left)
  count = count - gone
  changed = changed or gone > 0
  is_moved = is_moved or gone > 0
  for _, id in ipairs(back) do
    local is_back, main = restore_message(id)
    count = count + is_back
    changed = changed or is_back == 1 or main ~= id
    is_moved = is_moved or is_back == 1
    revived[#revived + 1] = main
  end
end
follow(left, back)

-- a client sends its conversation again: the same list, longer, shorter, or on another branch
if mode == 'turn' and thread[1] then
  locate(entries)
  local asked, has_answer, is_new = nil, false, false
  for _, entry in ipairs(entries) do
    local kind = string.sub(entry.words, 1, 1)
    if kind == 'q' then asked = entry end
    has_answer = has_answer or kind == 'a'
    is_new = is_new or (kind ~= '' and not entry.seq)
  end
  if not is_turn then
    local _, notes_count = recognise(entries, 1, #entries)
    local left, _, back = compare_list(entries, 1, #entries, notes_count)
    follow(left, back)
    -- tool traffic without stored ids, between two messages of the thread, is stored already
    local last, between = nil, {}
    for _, entry in ipairs(entries) do
      if entry.words == '' then
        if not entry.seq then between[#between + 1] = entry end
      else
        for _, one in ipairs(entry.seq and last and between or {}) do one.is_copy = true end
        last, between = entry.seq, {}
      end
    end
  elseif asked and asked.seq and has_answer and is_new then
    -- a question that is answered again leaves its own turn behind, but not what other programs have added since
    local kept, left = {}, {}
    for _, entry in ipairs(entries) do
      if entry.known then kept[entry.known] = true end
    end
    for _, id in ipairs(redis.call('ZRANGE', KEYS[2], '(' .. asked.seq, '+inf', 'BYSCORE', 'LIMIT', 0, 500)) do
      if not kept[id] and state_of(id) == 't' .. as_integer(asked.seq) then left[#left + 1] = id end
    end
    follow(left, {})
  end
end

-- the older versions of questions that were edited under their ids
local is_edited = {}
for _, id in ipairs(versions) do is_edited[id] = true end
for _, entry in ipairs(entries) do
  local seq = is_edited[entry.id] and redis.call('ZSCORE', KEYS[2], entry.id)
  if seq and words_of(entry.id) ~= entry.words then -- equal words: this is a repeat after a lost reply
    keep_version(entry.id, seq, redis.call('HGET', KEYS[3], entry.id))
  end
end

-- the checkpointed state that the messages belong to
local lineage
if source == 's' then
  local value = anchor ~= '' and redis.call('HGET', KEYS[3], anchor)
  local _, state = string.match(value or '', SAID_AND_STATE)
  lineage = tonumber(state) and state or value and redis.call('ZSCORE', KEYS[2], anchor) or as_integer(next_seq)
  for _, id in ipairs(claimed) do
    local old = redis.call('HGET', KEYS[3], id)
    if old then
      local at, old_model, size, chunks, said, _, rest = string.match(old, HEADER)
      redis.call('HSET', KEYS[3], id, header(at, old_model, size, chunks, said, lineage) .. string.sub(old, rest))
    end
  end
end

-- The body of a cloned message holds the id of its source.
local function without_ids(body)
  return (string.gsub(body, '"id":"[^"]*"', ''))
end

local question = source == 't' and anchor ~= '' and redis.call('ZSCORE', KEYS[2], anchor) or nil
local upto = tokens_said()
local inserted, tokens, stored = 0, 0, {}
local may_revive = (mode == 'append' or mode == 'turn') and redis.call('EXISTS', KEYS[7]) == 1
-- Writes a message, and returns its stored id.
local function save(entry)
  local id, model = entry.main or entry.known or entry.id, model
  local _, body, role, name, labels, size, words, weight = unpack(ARGV, entry.argument, entry.argument + 7)
  local chunks = tonumber(ARGV[entry.argument + 8])
  if may_revive then
    local is_back
    is_back, id = restore_message(id)
    count = count + is_back
    changed = changed or is_back == 1
    is_moved = is_moved or is_back == 1
  end
  local seq, is_superseded = redis.call('ZSCORE', KEYS[2], id), false
  if not seq and mode == 'update' then
    seq, is_superseded = redis.call('ZSCORE', KEYS[7], id), true
    model, chunks = '', 0 -- superseded messages have no vectors
  end
  local stored_at, said, state, write
  if seq then
    local old = redis.call('HGET', KEYS[3], id)
    local at, old_model, old_size, old_chunks, old_said, old_state, rest = string.match(old, HEADER)
    local is_copy = mode == 'turn' and id ~= entry.id -- the client sends less of it than the thread holds
    if is_copy then body = string.sub(old, rest) end
    local same = is_copy or string.sub(old, rest) == body
    state = old_state
    if lineage and not tonumber(old_state) then state = lineage end
    if mode == 'turn' and old_state == '' then state = 't' end
    if string.sub(words, 1, 1) == 'q' then question = seq end
    said = old_said
    local is_resaid = false
    if mode ~= 'heal' and not is_copy then
      local old_words, old_upto, refused = string.match(old_said, '^(%w*)/%d+/(%d+)(!?)')
      if words == '' and mode ~= 'turn' and is_data(old_words) then words = old_words end -- only a turn knows how it ends
      is_resaid = old_words ~= words or (refused ~= '' and mode ~= 'update')
      if is_resaid then
        said = words .. '/' .. weight .. '/' .. (words ~= '' and old_words == '' and as_integer(upto + weight) or old_upto)
      elseif words == '' then -- no words tell whether tool traffic was edited
        said = '/' .. weight .. '/' .. old_upto .. refused
      end
    end
    if same then
      local is_other = is_resaid and words ~= string.match(old_said, '^%w*') -- whether it is an answer
      write = model ~= '' and (old_model ~= model or mode == 'heal' or is_other)
    elseif mode ~= 'heal' then
      write, changed = true, true
      if words == '' and without_ids(body) ~= without_ids(string.sub(old, rest))
        or words ~= string.match(old_said, '^%w*') then
        edited[#edited + 1] = seq
      end
    end
    stored_at = at
    if write then
      delete_vectors(seq, old)
    elseif state ~= old_state or said ~= old_said then
      redis.call('HSET', KEYS[3], id,
        header(at, old_model, old_size, old_chunks, said, state) .. string.sub(old, rest))
    end
    if is_resaid then
      remove_said(seq, old_said)
      if not is_superseded then add_said(seq, said) end
      for _, version in ipairs(redis.call('ZRANGE', KEYS[7], '(' .. as_integer(seq - 1), '(' .. seq, 'BYSCORE')) do
        if words_of(version) == words then -- the message has the words of its older version again
          redis.call('ZREM', KEYS[7], version)
          redis.call('HDEL', KEYS[3], version)
        end
      end
      if string.sub(old_said, -1) == '!' then redis.call('HINCRBY', KEYS[1], 'refused', -1) end
    end
  elseif mode ~= 'heal' then
    write, changed = true, true
    seq = as_integer(next_seq)
    next_seq = next_seq + 1
    last_at = math.max(present, last_at + 1) -- strictly rising, even when the clock jumps back
    stored_at = as_integer(last_at)
    inserted, count, tokens = inserted + 1, count + 1, tokens + weight
    if words ~= '' then upto = upto + weight end
    said = words == '' and '/' .. weight .. '/0' or words .. '/' .. weight .. '/' .. as_integer(upto)
    if string.sub(words, 1, 1) == 'q' then question = seq end
    state = lineage or (part == 'older' and 'b') or (source == 't' and question and question ~= seq and 't' .. question) or source
    redis.call('ZADD', KEYS[2], seq, id)
    add_said(seq, said)
  end
  if write then
    redis.call('HSET', KEYS[3], id, header(stored_at, model, size, chunks, said, state) .. body)
    for chunk = 0, chunks - 1 do
      local text, vector = ARGV[entry.argument + 9 + 2 * chunk], ARGV[entry.argument + 10 + 2 * chunk]
      local key = vector_key(seq, chunk, size)
      redis.call('HSET', key, 'resource', owner, 'thread', tag, 'message', id, 'role', role, 'name', name,
        'labels', labels, 'created_at', stored_at, 'text', text, 'vector', vector)
      expire_vector(key, ttl ~= '' and ttl)
    end
  end
  return id
end
for number, entry in ipairs(entries) do stored[number] = entry.is_copy and entry.id or save(entry) end
for at = 1, #aliases, 2 do
  local seq = redis.call('ZSCORE', KEYS[2], aliases[at + 1])
  if seq then redis.call('ZADD', KEYS[8], seq, aliases[at]) end
end

local updated_at = thread[6] or ''
if changed then
  updated_at = as_integer(math.max(present, last_at))
  if not thread[1] then
    redis.call('HSET', KEYS[1], 'resource', owner, 'layout', LAYOUT, 'created_at', updated_at, 'labels', '')
    if redis.call('EXISTS', KEYS[9]) == 1 then redis.call('HSET', KEYS[1], 'trash', 1) end
  end
  redis.call('HSET', KEYS[1], 'updated_at', updated_at, 'next_seq', as_integer(next_seq), 'last_at', as_integer(last_at),
    'count', count)
end
if #edited > 0 or is_moved then
  redis.call('HDEL', KEYS[1], 'pending')
  reopen(edited)
  refresh_hidden()
end
if part == 'older' then
  redis.call('HSET', KEYS[1], 'is_begun', 1)
elseif thread[8] and part == 'last' then
  redis.call('HDEL', KEYS[1], 'is_begun')
end
local unfinished, due = 0, 0
if thread[1] or changed then
  if ttl ~= '' then redis.call('HSET', KEYS[1], 'ttl', ttl) end
  if scope ~= '' then
    due = is_observer_due(scope, tonumber(due_at), tokens)
  elseif inserted > 0 and thread[7] then
    redis.call('HDEL', KEYS[1], 'pending')
  end
  unfinished = renew_ttl()
end
local flags = redis.call('HMGET', KEYS[10], 'unpublished', 'unindexed')
local unpublished = (flags[1] and 1 or 0) + (flags[2] and 2 or 0)
local titled = thread[5] and redis.call('HEXISTS', KEYS[1], 'title') or 0
return {inserted, count, titled, updated_at, stored, revived, unfinished, due, unpublished, coverage_version()}
