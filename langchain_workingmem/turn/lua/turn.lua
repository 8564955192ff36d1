-- Compares the caller's list of messages with the thread, and reads the history before it; writes nothing.
-- ARGV  user or '', kind, messages of the history ('': all), step, 1 without tool traffic, roles (,human,ai, or ''),
--       most tokens of the history ('': any number), 1 if a summary replaces earlier messages, then id and words of each entry
-- Kinds list: a conversation, or a part of it, as a client sends it
--       state: all messages of a checkpointer, at whose end a client may have sent such a list
--       part: some messages of a state; what is missing there means nothing
-- Reply number of entries before the list, number of messages that the tokens cut, ids that are left behind, their sequence
--       numbers, ids that are taken up again, ids that the state claims; for each entry its stored id ('': none), its sequence
--       number, tokens said up to it, 1 if its words differ from the stored ones, 1 if it was refused, 2 if it was forgotten; then id, seq, value of
--       each message of the history that is not in the list, in order; what a room replies; where the history begins (-inf, +inf,
--       or a sequence number); 1 if the tokens left out messages of the list or of the store, and 2 more if vectors
--       may expire before the thread; the next sequence number of the thread; WMOWNER.
-- A room may stand for some messages (hooks.cover): the history does not show them.
-- The cost follows the number of returned messages, and of entries.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
local kind, last, step = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local is_without_tools, roles, most, is_summarised = ARGV[5] == '1', ARGV[6], tonumber(ARGV[7]), ARGV[8] == '1'
local entries = {}
for at = 9, #ARGV, 2 do entries[#entries + 1] = {id = ARGV[at], words = ARGV[at + 1]} end
local thread = redis.call('HMGET', KEYS[1], 'user', 'refused', 'vectors_expire_first', 'next_seq')
if thread[1] then locate(entries) end

-- where the list begins
local start, notes_count = 1, false
if thread[1] and kind ~= 'part' then
  for at, entry in ipairs(kind == 'state' and entries or {}) do
    if entry.seq then start = at + 1 end
  end
  local said, found = 0, nil
  for at = start, #entries do
    if entries[at].words ~= '' and not is_data(entries[at].words) then said = said + 1 end
  end
  if said > 1 then found, notes_count = recognise(entries, start, #entries) end
  if found then kind = 'list' end
  if kind == 'state' then
    -- the state may contain several lists of a client: the last one counts, in which sequence numbers rise
    start = 1
    local lowest, begins_at, has_alias = math.huge, nil, false
    for at = #entries, 1, -1 do
      local entry = entries[at]
      if entry.seq then
        has_alias = has_alias or entry.known ~= entry.id
        if entry.seq >= lowest and not begins_at then begins_at = at + 1 end
        lowest = math.min(lowest, entry.seq)
      end
    end
    if has_alias and begins_at then
      while not entries[begins_at].seq do begins_at = begins_at + 1 end
      start, kind = begins_at, 'list'
    end
  end
end

-- the state that the entries belong to; its messages before the first entry were trimmed off by the caller
local state_begins, own_state = nil, nil
if ARGV[2] == 'state' then
  for _, entry in ipairs(entries) do
    if entry.seq and (not state_begins or entry.seq < state_begins) then
      state_begins, own_state = entry.seq, state_of(entry.known)
    end
  end
  if not tonumber(own_state) then own_state = nil end
end

local left, gone, back, claimed = {}, {}, {}, {} -- `gone`: the sequence numbers of `left`, as a set
local first -- sequence number at which the list begins
if kind == 'list' then
  local said, anchor = 0, nil
  for at = start, #entries do
    if entries[at].words ~= '' and not is_data(entries[at].words) then said = said + 1 end
    anchor = anchor or (entries[at].seq and entries[at])
  end
  -- a single message is a new question and leaves nothing behind, unless its words have changed under a known id
  local is_edit = anchor and anchor.words ~= '' and not is_data(anchor.words) and words_of(anchor.known) ~= anchor.words
  if anchor and (said > 1 or is_edit) then
    left, gone, back, first = compare_list(entries, start, #entries, notes_count, math.huge)
  elseif anchor then
    first = anchor.seq
  end
else
  local kept, current = {}, 0
  for _, entry in ipairs(entries) do
    if entry.seq and not kept[entry.known] then
      kept[entry.known] = true
      first = math.min(first or entry.seq, entry.seq)
      if not entry.back then
        current = current + 1
      elseif kind == 'state' then
        back[#back + 1] = entry.known
      end
    end
  end
  if first and kind == 'state' then
    if not own_state then
      for id in pairs(kept) do claimed[#claimed + 1] = id end
    elseif redis.call('ZCOUNT', KEYS[2], first, '+inf') > current then
      each_message(first, function(id, seq, _, state)
        if kept[id] or state ~= own_state then return end
        left[#left + 1] = id
        gone[seq] = true
      end)
    end
  end
end

if hooks.left and next(gone) then left = hooks.left(left, gone) end

-- the question that is asked: later messages of the thread are not its history
local asked
for at = start, #entries do
  if string.sub(entries[at].words, 1, 1) == 'q' then asked = entries[at].seq end
end
local below = asked and '(' .. asked or '+inf'

local covered, range_of, more = {}, nil, {} -- the ranges that a room stands for
if hooks.cover then
  covered, range_of, more = hooks.cover({entries = entries, start = start, left = left, gone = gone, back = back, asked = asked, first = first})
end
local function is_covered(seq)
  return covered[1] and range_of(covered, seq)
end

-- the role that counts, where the options name one of the two
local only
if roles ~= '' then
  only = (string.find(roles, ',human,', 1, true) and 'q' or '') .. (string.find(roles, ',ai,', 1, true) and 'a' or '')
  if only == 'qa' then only = nil end
end
-- what was said in the messages that the list takes up again
local back_said = {}
for _, id in ipairs(back) do
  local said = said_and_state(id)
  if not is_traffic(said) and string.sub(said, -1) ~= '!' then
    back_said[#back_said + 1] = parse_said(seq_of(redis.call('ZSCORE', KEYS[7], id)) .. ':' .. said)
  end
end
local function counts(said)
  return not only or string.sub(said.words, 1, 1) == only
end
local function each_back(visit)
  for _, said in ipairs(back_said) do
    if (not asked or said.seq < asked) and counts(said) then visit(said) end
  end
end
local function size_of(low, high)
  if only == '' then return 0 end
  local answers = only and redis.call('ZCOUNT', KEYS[6], low, high) or 0
  return only == 'a' and answers or redis.call('ZCOUNT', KEYS[5], low, high) - answers
end
local total = size_of('-inf', below)
for seq in pairs(gone) do
  if not asked or seq < asked then total = total - size_of(seq, seq) end
end
each_back(function() total = total + 1 end)

-- What was said on the caller's branch, the newest first, from the `first`th on.
local is_plain = #left == 0 and #back_said == 0 and not only
local function newest(first, number)
  if is_plain then
    return parsed(redis.call('ZRANGE', KEYS[5], below, '-inf', 'BYSCORE', 'REV', 'LIMIT', first - 1, number))
  end
  local found = {}
  local reach = (only == 'q' and 20 or 1) * (first + number) + #left
  local key = only == 'a' and KEYS[6] or KEYS[5]
  for _, said in ipairs(parsed(redis.call('ZRANGE', key, below, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, reach))) do
    if not gone[said.seq] and counts(said) then found[#found + 1] = said end
  end
  each_back(function(said) found[#found + 1] = said end)
  table.sort(found, function(a, b) return a.seq > b.seq end)
  local chosen = {}
  for at = first, math.min(first + number - 1, #found) do chosen[#chosen + 1] = found[at] end
  return chosen
end
local function is_question(said)
  return string.sub(said.words, 1, 1) == 'q'
end

local GROWTH = 20 -- more messages that the history shows at most, in order to begin with a question
local begins = '-inf'
local shows = last ~= 0
local first_raw = '-inf' -- where the messages begin that are not covered
while covered[1] do
  local seq = redis.call('ZRANGE', KEYS[2], first_raw, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  local range = seq and is_covered(tonumber(seq))
  if not range then break end
  first_raw = as_integer(range[2] + 1)
end
if shows and last and total > last then
  local skipped = math.floor((total - last) / step) * step
  if skipped > 0 then
    local found = newest(total - skipped, 2)
    local edge = found[1]
    if edge and not is_question(edge) and not only then
      local at = 2
      if found[2] and not is_question(found[2]) then found = newest(total - skipped, GROWTH) end
      while found[at] and not is_question(found[at]) do at = at + 1 end
      edge = found[at] or edge
    end
    if edge and is_question(edge) then
      begins = edge.seq
    elseif edge and found[2] then
      begins = found[2].seq + 1 -- with the tool traffic that led to the answer
    end
  end
end

-- with a limit of tokens, only as much of what was said as fits, but always the newest turn
local cut, is_cut = 0, 0
if shows and most then
  local number, size, fits = 100, 0, nil
  while true do
    local found, has_question = newest(1, number), false
    size, fits = 0, nil
    for _, said in ipairs(found) do
      size = size + (is_covered(said.seq) and 0 or said.weight)
      if has_question and size > most then break end
      fits = said.seq
      has_question = has_question or is_question(said)
    end
    if size > most or #found >= total or (begins ~= '-inf' and fits and fits <= begins) then
      if size <= most then fits = nil end
      break
    end
    number = number * 4
  end
  if fits and (begins == '-inf' or fits > begins) then
    cut = redis.call('ZCOUNT', KEYS[2], begins, '(' .. fits)
    is_cut = 1
    for _, entry in ipairs(entries) do -- the caller counts its own
      local is_own = entry.seq and not entry.back and entry.seq < fits and (begins == '-inf' or entry.seq >= begins)
      if is_own and not is_covered(entry.seq) then cut = cut - 1 end
    end
    for _, range in ipairs(covered) do
      cut = cut - redis.call('ZCOUNT', KEYS[2], range[1], math.min(range[2], fits - 1))
    end
    begins = fits
  end
end

local hidden = kind == 'list' and resent_traffic(entries, start, #entries) or {}
for at = start, #entries do
  if entries[at].seq then hidden[entries[at].known] = true end
end
for _, id in ipairs(left) do hidden[id] = true end

-- Whether the history shows a message; most are shown without reading their headers.
local reads_header = own_state or thread[2] or roles ~= '' or is_without_tools or most
local function is_shown(seq, value)
  if not reads_header then return true end
  local _, _, size, _, said, state, rest = string.match(value, HEADER)
  if own_state and tonumber(seq) < state_begins and state == own_state
    and not (hooks.was_removed and hooks.was_removed(tonumber(seq))) then
    return false
  end
  if string.sub(said, -1) == '!' then return false end
  local role, tokens = role_at(value, rest), tonumber(string.match(size, '^%d+'))
  if roles ~= '' and not string.find(roles, ',' .. role .. ',', 1, true) then return false end
  if not is_traffic(said) then return true end
  if is_without_tools and (role ~= 'ai' or tokens == 0) then return false end
  if roles ~= '' and not string.find(roles, ',tool,', 1, true) then return false end
  if most and tokens > most then
    cut = cut + 1
    return false
  end
  return true
end
local rows = {}
if shows and thread[1] then
  local found = {}
  local function take(id, seq)
    if hidden[id] or (is_summarised and (not first or tonumber(seq) < first)) then return end
    if is_covered(tonumber(seq)) then return end
    found[#found + 1] = {id = id, seq = seq}
  end
  local function take_range(low, high)
    local ranked = redis.call('ZRANGE', KEYS[2], low, high, 'BYSCORE', 'WITHSCORES')
    for at = 1, #ranked, 2 do take(ranked[at], ranked[at + 1]) end
  end
  local low = begins == '-inf' and first_raw or begins
  for _, range in ipairs(covered) do -- between what is covered
    if low == '-inf' or range[2] >= tonumber(low) then
      if asked and range[1] >= asked then break end
      take_range(low, '(' .. as_integer(range[1]))
      low = as_integer(range[2] + 1)
    end
  end
  if not asked or low == '-inf' or tonumber(low) < asked then take_range(low, below) end
  for _, id in ipairs(back) do
    local seq = redis.call('ZSCORE', KEYS[7], id)
    if begins == '-inf' or tonumber(seq) >= tonumber(begins) then take(id, seq) end
  end
  if #back > 0 then table.sort(found, function(a, b) return tonumber(a.seq) < tonumber(b.seq) end) end
  for start = 1, #found, 500 do
    local ids = {}
    for at = start, math.min(start + 499, #found) do ids[#ids + 1] = found[at].id end
    for at, value in ipairs(redis.call('HMGET', KEYS[3], unpack(ids))) do
      local seq = found[start + at - 1].seq
      if is_shown(seq, value) then
        rows[#rows + 1] = ids[at]
        rows[#rows + 1] = seq
        rows[#rows + 1] = value
      end
    end
  end
end

-- what the thread knows about the entries
local said_at = {}
if first and #entries > 0 then
  local last = first
  for _, entry in ipairs(entries) do last = math.max(last, entry.seq or first) end
  for _, said in ipairs(parsed(redis.call('ZRANGE', KEYS[5], first, last, 'BYSCORE'))) do said_at[said.seq] = said end
  for _, said in ipairs(back_said) do said_at[said.seq] = said end
end
local ids, seqs, uptos, changed, refused = {}, {}, {}, {}, {}
for at, entry in ipairs(entries) do
  local said = entry.seq and said_at[entry.seq]
  ids[at], seqs[at], uptos[at] = entry.main or entry.known or '', entry.seq or -1, said and said.upto or -1
  changed[at] = said and said.words ~= entry.words and not is_data(said.words) and 1 or 0
  local may_be_refused = thread[2] and entry.seq and not said
  refused[at] = entry.is_forgotten and 2 or may_be_refused and string.sub(said_and_state(entry.known), -1) == '!' and 1 or 0
end
local left_seqs = {}
for seq in pairs(gone) do left_seqs[#left_seqs + 1] = seq end
if not shows then begins = asked or '+inf' end
return {start - 1, cut, left, left_seqs, back, claimed, ids, seqs, uptos, changed, refused, rows, more, begins, is_cut + (thread[3] and 2 or 0), thread[4] or 0}
