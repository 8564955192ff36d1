-- Saves messages in one atomic step. KEYS are those of header.lua.
-- ARGV  mode, user (or ''), thread as a tag, model, ttl in ms (or '': unchanged), part, source, anchor; four times a number and as
--       many ids: left behind, taken up again, claimed by the state, to be kept in their older version; a number of aliases, and for
--       each alias and id; then for each message id, body (its JSON without the first brace; behind a blank: of a shortened copy, what
--       the thread has stays), role, name, labels (and after a newline the metadata that recall filters on), size, words, weight, number
--       of pairs that follow, (text, vector) of each chunk, (hash, bytes) of each reference to media in the body
-- Modes append: insert new messages, replace different ones, leave equal ones
--       turn:   the same for one turn: an answer that is given again supersedes the one before
--       list:   the same for a longer part of a conversation, whose messages are recognised by their words too; what contradicts
--               it is superseded
--       update: replace existing messages; if one is missing, write nothing and return WMNOMESSAGE <number, from 0>
--       heal:   give new vectors to messages that have not changed since they were read
-- `model` is empty without vectors. `source` becomes `state`: '', t, or for s the state of the message `anchor`, or a new one. Behind t
--       stands the next sequence number of the thread when its context was read, if that is known: what is newer contradicts nothing.
-- `part` is '', or 'rest': the end of a list, 'older': a batch before it, 'last': the end after all batches. The field `is_begun` of
-- the thread stands from the first batch to the end, so that a repeat begins anew.
-- Errors WMNEW: the caller holds earlier messages, and the thread never had one; WMOLDER: the list begins before the thread; WMBRANCH: the
--       messages have to be compared with the thread, which the larger variant does (compare.lua); WMCOVERED; WMKEPT; WMOWNER, WMNOTHREAD.
--       Nothing is written then.
-- Reply number of new messages, number in the thread, 1 if it has a title, updated_at, the stored ids of the messages, the ids that
--       are taken up again, what renew_ttl returns, then what a room adds (hooks.saved)
local mode, user, tag, model, ttl, part = unpack(ARGV, 1, 6)
local anchor, source, seen = ARGV[8], string.match(ARGV[7], '^(%a?)(%d*)$')
local is_list = mode == 'list'
if is_list then mode = 'turn' end
local thread = redis.call('HMGET', KEYS[1], 'user', 'next_seq', 'last_at', 'count', 'title', 'updated_at', 'is_begun', 'covered',
  -- what `renew_ttl` asks for: it has nothing to do where none of it is set
  'ttl', 'title_source', 'vectors_expire_at', 'next_vectors_expire_at', 'vectors_expire_first', 'renew_vectors_from', 'drop_vectors_from',
  'trash')
local refusal = write_refusal(user, thread[1], thread[8])
if refusal then return refusal end
if not thread[1] and mode ~= 'append' and mode ~= 'turn' then
  return redis.error_reply('WMNOTHREAD')
end
if part == 'rest' then
  if not thread[3] or thread[7] then return redis.error_reply('WMNEW') end
end
check_key_types()
local owner = thread[1] or user
local next_seq = tonumber(thread[2] or first_seq())
local last_at = tonumber(thread[3] or 0)
local present = now()

local next_argument = 9
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

refusal = hooks.edits and hooks.edits(entries, mode)
if refusal then return refusal end

if mode == 'update' then
  for number, entry in ipairs(entries) do
    if redis.call('HEXISTS', KEYS[3], entry.id) == 0 then
      return redis.error_reply('WMNOMESSAGE ' .. (number - 1))
    end
  end
end

-- Returns the scores of the messages under a key by id, false where it does not have one; and whether it has any.
local function scores_of(key)
  local scores, is_any = {}, false
  for start = 1, #entries, 1000 do
    local ids = {}
    for at = start, math.min(start + 999, #entries) do ids[#ids + 1] = entries[at].id end
    for at, score in ipairs(redis.call('ZMSCORE', key, unpack(ids))) do
      scores[ids[at]], is_any = score, is_any or score ~= false
    end
  end
  return scores, is_any
end
local seqs = hooks.compare and {} or scores_of(KEYS[2]) -- a comparison may move messages: then each is asked for when it is saved

-- Whether the turn has a new answer to a question that is stored, and other messages follow that.
local function is_answered_again()
  local asked, is_new, after = nil, false, {}
  for _, entry in ipairs(entries) do
    local seq, kind = seqs[entry.id], string.sub(entry.words, 1, 1)
    if kind == 'q' then asked, after = seq, {} end
    is_new = is_new or (kind ~= '' and not seq)
    after[#after + 1] = seq or nil
  end
  return asked and is_new and redis.call('ZCOUNT', KEYS[2], asked, '+inf') > #after
end

-- Whether the messages may be more than new ones at the end of the thread.
local function needs_comparison()
  if #left + #back > 0 then return true end
  for _, entry in ipairs(#versions > 0 and entries or {}) do
    local is_edited = string.sub(entry.words, 1, 1) == 'q' and seqs[entry.id]
      and string.match(redis.call('HGET', KEYS[3], entry.id), HEADER_SAID) ~= entry.words
    if is_edited then return true end
  end
  if mode == 'update' or mode == 'heal' or not thread[2] then return false end
  local has_others = redis.call('EXISTS', KEYS[7], KEYS[8]) > 0
  if mode == 'turn' and (is_list or is_answered_again()) then return true end
  if source ~= '' and has_others and (select(2, scores_of(KEYS[8])) or (source == 't' and redis.call('ZSCORE', KEYS[7], anchor))) then
    return true
  end
  local begin = mode == 'append' and #entries > 1 and redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  local said = begin and string.match(redis.call('HGET', KEYS[3], begin), HEADER_SAID)
  for at = 2, begin and #entries or 1 do
    if entries[at].id == begin or entries[at].words == said then return true end
  end
  return has_others and select(2, scores_of(KEYS[7]))
end

-- what has changed: `count` of the current branch, and whether another branch is the current one
local done = {count = tonumber(thread[4] or 0), changed = false, is_moved = false, revived = {}}
if hooks.compare then
  local refused = hooks.compare(done, {mode = mode, entries = entries, left = left, back = back, versions = versions, is_list = is_list,
    seen = tonumber(seen) or math.huge, is_turn = source ~= '', question = source == 't' and anchor,
    has_thread = thread[1], has_messages = thread[2], had_messages = thread[3]})
  if refused then return refused end
elseif needs_comparison() then
  return redis.error_reply('WMBRANCH')
end

-- the checkpointed state that the messages belong to
local lineage
if source == 's' then
  local value = anchor ~= '' and redis.call('HGET', KEYS[3], anchor)
  local state = select(6, string.match(value or '', HEADER))
  lineage = tonumber(state) and state or value and redis.call('ZSCORE', KEYS[2], anchor) or as_integer(next_seq)
  for _, id in ipairs(claimed) do
    local old = redis.call('HGET', KEYS[3], id)
    if old then
      local at, old_model, size, chunks, said, _, rest = string.match(old, HEADER)
      redis.call('HSET', KEYS[3], id, header(at, old_model, size, chunks, said, lineage) .. string.sub(old, rest))
    end
  end
end

local question = source == 't' and anchor ~= '' and redis.call('ZSCORE', KEYS[2], anchor) or nil
local upto = tokens_said()
local inserted, tokens, stored = 0, 0, {}
-- A command costs about 2 us beside its work, so what the thread does not need is left out, and new messages are written together.
-- Whether nothing in the thread expires, is swept, or goes with a message:
local is_lasting = thread[1] and ttl == '' and not hooks.compare
for at = 9, #thread do is_lasting = is_lasting and not thread[at] end

local order, bodies, said_by = {}, {}, {[5] = {}, [6] = {}}
local function flush()
  if #order == 0 then return end
  redis.call('ZADD', KEYS[2], unpack(order))
  redis.call('HSET', KEYS[3], unpack(bodies))
  for key, members in pairs(said_by) do
    if #members > 0 then redis.call('ZADD', KEYS[key], unpack(members)) end
  end
  order, bodies, said_by = {}, {}, {[5] = {}, [6] = {}}
end

-- Writes a message, and returns its stored id.
local function save(entry)
  local id, model = entry.main or entry.known or entry.id, model
  local _, body, role, name, labels, size, words, weight = unpack(ARGV, entry.argument, entry.argument + 7)
  local chunks = ARGV[entry.argument + 8] - (mode == 'heal' and 0 or refer(body))
  if hooks.revive and (mode == 'append' or mode == 'turn') then id = hooks.revive(id) end
  local seq, is_superseded, media = seqs[id], false, entry.argument + 9 + 2 * chunks
  if seq == nil then seq = redis.call('ZSCORE', KEYS[2], id) end
  if not seq and mode == 'update' then
    seq, is_superseded = redis.call('ZSCORE', KEYS[7], id), true
    model, chunks = '', 0 -- superseded messages have no vectors
  end
  local stored_at, said, state, write, is_new
  if seq then
    flush()
    local old = redis.call('HGET', KEYS[3], id)
    local at, old_model, old_size, old_chunks, old_said, old_state, rest = string.match(old, HEADER)
    local is_copy = string.byte(body) == 32 or (mode == 'turn' and id ~= entry.id) -- the client sends less of it than the thread holds
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
      write, done.changed = true, true
      if hooks.is_edited and hooks.is_edited(old, body, words, mode) then edited[#edited + 1] = seq end
    end
    stored_at = at
    if write then
      delete_vectors(seq, old)
      if not same then refer(body, 1, media); refer(old, -1) end
    elseif state ~= old_state or said ~= old_said then
      redis.call('HSET', KEYS[3], id,
        header(at, old_model, old_size, old_chunks, said, state) .. string.sub(old, rest))
    end
    if is_resaid then
      remove_said(seq, old_said)
      if thread[10] == seq then redis.call('HDEL', KEYS[1], 'title', 'title_source') end -- made from the words before
      if not is_superseded then add_said(seq, said) end
      for _, version in ipairs(redis.call('ZRANGE', KEYS[7], '(' .. as_integer(seq - 1), '(' .. seq, 'BYSCORE')) do
        local older = redis.call('HGET', KEYS[3], version)
        if string.match(older, HEADER_SAID) == words then -- the message has the words of its older version again
          redis.call('ZREM', KEYS[7], version)
          refer(older, -1)
          redis.call('HDEL', KEYS[3], version)
        end
      end
      if string.sub(old_said, -1) == '!' then redis.call('HINCRBY', KEYS[1], 'refused', -1) end
    end
  elseif mode ~= 'heal' then
    write, done.changed, is_new, body = true, true, true, string.match(body, '^ ?(.*)')
    refer(body, 1, media)
    seq = as_integer(next_seq)
    next_seq = next_seq + 1
    last_at = math.max(present, last_at + 1) -- strictly rising, even when the clock jumps back
    stored_at = as_integer(last_at)
    inserted, done.count, tokens = inserted + 1, done.count + 1, tokens + weight
    if words ~= '' then upto = upto + weight end
    said = words == '' and '/' .. weight .. '/0' or words .. '/' .. weight .. '/' .. as_integer(upto)
    if string.sub(words, 1, 1) == 'q' then question = seq end
    state = lineage or (part == 'older' and 'b') or (source == 't' and question and question ~= seq and 't' .. question) or source
    seqs[id] = seq
  end
  if write then
    local value = header(stored_at, model, size, chunks, said, state) .. body
    if is_new then
      if #order == 400 then flush() end
      order[#order + 1], order[#order + 2] = seq, id
      bodies[#bodies + 1], bodies[#bodies + 2] = id, value
      for _, key in ipairs(said_keys(said)) do
        local members = said_by[key]
        members[#members + 1], members[#members + 2] = seq, seq .. ':' .. said
      end
    else
      redis.call('HSET', KEYS[3], id, value)
    end
    local tags, metadata = labels, ''
    if labels ~= '' then tags, metadata = string.match(labels, '^([^\n]*)\n?(.*)$') end
    local more = metadata ~= '' and {'metadata', metadata} or {}
    for chunk = 0, chunks - 1 do
      local text, vector = ARGV[entry.argument + 9 + 2 * chunk], ARGV[entry.argument + 10 + 2 * chunk]
      local key = vector_key(seq, chunk, size)
      local added = redis.call('HSET', key, 'user', owner, 'thread', tag, 'message', id, 'role', role, 'name', name,
        'labels', tags, 'created_at', stored_at, 'text', text, 'vector', vector, unpack(more))
      -- where some fields were there, an expired thread of the same id may have left a vector of this name
      if not is_lasting or added < 9 + #more / 2 then expire_vector(key, ttl ~= '' and ttl) end
    end
  end
  return id
end
for number, entry in ipairs(entries) do stored[number] = (entry.is_copy or entry.is_forgotten) and entry.id or save(entry) end
flush()
local may_be_deleted = (hooks.compare or source == '') and redis.call('EXISTS', KEYS[8]) == 1
for _, entry in ipairs(may_be_deleted and entries or {}) do -- behind a write that a full server refuses
  local is_stored = not (entry.is_copy or entry.is_forgotten)
  if is_stored and tonumber(redis.call('ZSCORE', KEYS[8], entry.id) or 0) < 0 then redis.call('ZREM', KEYS[8], entry.id) end
end
for at = 1, #aliases, 2 do
  local seq = redis.call('ZSCORE', KEYS[2], aliases[at + 1])
  if seq then redis.call('ZADD', KEYS[8], seq, aliases[at]) end
end

local updated_at = thread[6] or ''
if done.changed then
  updated_at = as_integer(math.max(present, last_at))
  if not thread[1] then
    redis.call('HSET', KEYS[1], 'user', owner, 'layout', LAYOUT, 'created_at', updated_at, 'labels', '')
    if redis.call('EXISTS', KEYS[9]) == 1 then redis.call('HSET', KEYS[1], 'trash', 1) end
  end
  redis.call('HSET', KEYS[1], 'updated_at', updated_at, 'next_seq', as_integer(next_seq), 'last_at', as_integer(last_at),
    'count', done.count)
end
if #edited > 0 or done.is_moved then tell_change(edited) end
if part == 'older' then
  redis.call('HSET', KEYS[1], 'is_begun', 1)
elseif thread[7] and part == 'last' then
  redis.call('HDEL', KEYS[1], 'is_begun')
end
local unfinished, is_stored = 0, thread[1] or done.changed
local more = hooks.saved and hooks.saved(is_stored, inserted, tokens) or {}
if is_stored then
  if ttl ~= '' then redis.call('HSET', KEYS[1], 'ttl', ttl) end
  unfinished = is_lasting and 0 or renew_ttl()
end
local titled = thread[5] and (is_lasting and 1 or redis.call('HEXISTS', KEYS[1], 'title')) or 0
return {inserted, done.count, titled, updated_at, stored, done.revived, unfinished, unpack(more)}
