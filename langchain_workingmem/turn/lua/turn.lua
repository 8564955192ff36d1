-- Compares what a caller shows a model with the thread, and reads the history in front of it; writes nothing.
-- ARGV  resource or '', kind, messages of the history ('': all), step, 1 without tool traffic, roles (,human,ai, or ''),
--       most tokens of what is said ('': any number), 1 when a summary stands for what is in front, then id and words of each
--       message of the list
-- Kinds list: all of the conversation, or a part of it, as a client sends it
--       state: the state of a checkpointer, at the end of which a client may have sent such a list
--       part: a part of a state, which says nothing about the rest
-- Reply number of entries in front of where the list begins, number of messages that the tokens cut, ids that are left
--       behind, their sequence numbers, ids that are taken up again, ids to be marked as those of the state, the stored id of each entry ('': none), its
--       sequence number, tokens said up to it, 1 where its words differ from the stored ones, 1 where it was refused; then id, seq, value of each
--       message of the history that is not in the list, in order; WMOWNER.
-- This costs what it returns, and a lookup for each message of the list.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
local kind, last, step = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local is_without_tools, roles, most, is_summarised = ARGV[5] == '1', ARGV[6], tonumber(ARGV[7]), ARGV[8] == '1'
local entries = {}
for place = 9, #ARGV, 2 do
  entries[#entries + 1] = {id = ARGV[place], words = ARGV[place + 1]}
end
local thread = redis.call('HMGET', KEYS[1], 'resource', 'refused')
if thread[1] then locate(entries) end

-- where the list begins, and what it says
local start, notes_count = 1, false
if thread[1] and kind ~= 'part' then
  if kind == 'state' then
    for at, entry in ipairs(entries) do
      if entry.seq then start = at + 1 end
    end
  end
  local said, has_answer = 0, false
  for at = start, #entries do
    if entries[at].words ~= '' then
      said = said + 1
      has_answer = has_answer or string.sub(entries[at].words, 1, 1) == 'a'
    end
  end
  local found
  if said > 1 then found, notes_count = recognise(entries, start, #entries) end
  if found then kind = 'list' end
  if kind == 'state' then
    -- a state in which a client's lists were taken up twice: the last of them counts, and sequence numbers rise within it
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

-- the state that the list belongs to; what stands in front of its first message and belongs to it was trimmed off
local state_begins, own_state = nil, nil
if ARGV[2] == 'state' then
  for _, entry in ipairs(entries) do
    if entry.seq and (not state_begins or entry.seq < state_begins) then
      state_begins, own_state = entry.seq, select(2, said_and_state(entry.known))
    end
  end
  if not tonumber(own_state) then own_state = nil end
end

local left, gone, back, marks = {}, {}, {}, {} -- `gone`: the sequence numbers of those left behind
local first -- sequence number of the list
if kind == 'list' then
  local said, anchor = 0, nil
  for at = start, #entries do
    if entries[at].words ~= '' then said = said + 1 end
    anchor = anchor or (entries[at].seq and entries[at])
  end
  -- one message is a new question and leaves nothing behind, unless it says something else under an id that is known
  local is_edit = anchor and anchor.words ~= '' and string.match(said_and_state(anchor.known), '^%w*') ~= anchor.words
  if anchor and (said > 1 or is_edit) then
    notes_count = notes_count or select(2, said_and_state(anchor.known)) == ''
    left, gone, back, first = compare_list(entries, start, #entries, notes_count)
  elseif anchor then
    first = anchor.seq
  end
else
  local kept, current, anchor = {}, 0, nil
  for _, entry in ipairs(entries) do
    if entry.seq and not kept[entry.known] then
      kept[entry.known] = true
      if not anchor or entry.seq < anchor.seq then anchor = entry end
      if entry.back then back[#back + 1] = entry.known else current = current + 1 end
    end
  end
  first = anchor and anchor.seq
  if anchor and kind == 'state' then
    if not own_state then -- it begins to belong to this state
      for id in pairs(kept) do marks[#marks + 1] = id end
    elseif redis.call('ZCOUNT', KEYS[2], first, '+inf') > current then
      each_on_branch(first, function(id, seq, _, state)
        if kept[id] or state ~= own_state then return end
        left[#left + 1] = id
        gone[seq] = true
      end)
    end
  elseif kind == 'part' then
    back = {}
  end
end

-- the question that is asked: what stands behind it in the thread is no history of it
local asked
for at = #entries, start, -1 do
  if string.sub(entries[at].words, 1, 1) == 'q' then
    asked = entries[at].seq
    break
  end
end

-- what was said on the branch as the caller has it, the newest first
local behind = {}
for _, id in ipairs(back) do
  local seq = seq_of(redis.call('ZSCORE', KEYS[7], id))
  local said = said_and_state(id)
  if not is_traffic(said) and string.sub(said, -1) ~= '!' then behind[#behind + 1] = parse_said(seq .. ':' .. said) end
end
-- of one role only, where the options say so
local only
if roles ~= '' then
  only = (string.find(roles, ',human,', 1, true) and 'q' or '') .. (string.find(roles, ',ai,', 1, true) and 'a' or '')
  if only == 'qa' then only = nil end
end
local function counts(said) return not only or string.sub(said.words, 1, 1) == only end
local below = asked and '(' .. asked or '+inf'
local function size_of(low, high)
  if only == '' then return 0 end
  local answers = only and redis.call('ZCOUNT', KEYS[6], low, high) or 0
  return only == 'a' and answers or redis.call('ZCOUNT', KEYS[5], low, high) - answers
end
local total = size_of('-inf', below)
for seq in pairs(gone) do
  if not asked or seq < asked then total = total - size_of(seq, seq) end
end
for _, said in ipairs(behind) do
  if (not asked or said.seq < asked) and counts(said) then total = total + 1 end
end
-- What was said on the caller's branch from the `first`th newest on.
local is_plain = #left == 0 and #behind == 0 and not only
local function newest(first, number)
  if is_plain then
    return parsed(redis.call('ZRANGE', KEYS[5], below, '-inf', 'BYSCORE', 'REV', 'LIMIT', first - 1, number))
  end
  local found, most = {}, first + number
  for _, said in ipairs(parsed(redis.call('ZRANGE', only == 'a' and KEYS[6] or KEYS[5], below, '-inf', 'BYSCORE', 'REV',
      'LIMIT', 0, (only == 'q' and 20 or 1) * most + #left))) do
    if not gone[said.seq] and counts(said) then found[#found + 1] = said end
  end
  for _, said in ipairs(behind) do
    if (not asked or said.seq < asked) and counts(said) then found[#found + 1] = said end
  end
  table.sort(found, function(a, b) return a.seq > b.seq end)
  local chosen = {}
  for at = first, math.min(first + number - 1, #found) do chosen[#chosen + 1] = found[at] end
  return chosen
end

local GROWTH = 20 -- messages that a window grows at most to begin with a question
local begins = '-inf'
local shows = last ~= 0
if shows and last and total > last then
  local place = math.floor((total - last) / step) * step
  if place > 0 then
    local found = newest(total - place, 2)
    local edge = found[1]
    if edge and string.sub(edge.words, 1, 1) == 'a' and not only then
      local at = 2
      if found[2] and string.sub(found[2].words, 1, 1) ~= 'q' then found = newest(total - place, GROWTH) end
      while found[at] and string.sub(found[at].words, 1, 1) ~= 'q' do at = at + 1 end
      edge = found[at] or edge
    end
    if edge and string.sub(edge.words, 1, 1) == 'q' then
      begins = edge.seq
    elseif edge and found[2] then
      begins = found[2].seq + 1 -- the tool traffic that led to the answer comes along
    end
  end
end

-- with a limit of tokens, no more of what was said than fits, but the newest turn in any case
local cut = 0
if shows and most then
  local number, size, fits = 100, 0, nil
  while true do
    local found, has_question = newest(1, number), false
    size, fits = 0, nil
    for _, said in ipairs(found) do
      size = size + said.weight
      if has_question and size > most then break end
      fits = said.seq
      has_question = has_question or string.sub(said.words, 1, 1) == 'q'
    end
    if size > most or #found >= total or (begins ~= '-inf' and fits and fits <= begins) then
      if size <= most then fits = nil end
      break
    end
    number = number * 4
  end
  if fits and (begins == '-inf' or fits > begins) then
    cut = redis.call('ZCOUNT', KEYS[2], begins, '(' .. fits)
    begins = fits
  end
end

local known = kind == 'list' and resent_traffic(entries, start, #entries) or {}
for at = start, #entries do
  if entries[at].seq then known[entries[at].known] = true end
end
local doomed = {}
for _, id in ipairs(left) do doomed[id] = true end

-- Tells whether a message is part of the history as it is to be shown; most need no look into their headers.
local looks_inside = own_state or thread[2] or roles ~= '' or is_without_tools or most
local function is_shown(id, seq, value)
  if not looks_inside then return true end
  local _, _, size, _, said, state, rest = string.match(value, HEADER)
  if own_state and tonumber(seq) < state_begins and state == own_state then return false end
  if string.sub(said, -1) == '!' then return false end
  local role, tokens = role_at(value, rest), tonumber(string.match(size, '^%d+'))
  if roles ~= '' and not string.find(roles, ',' .. role .. ',', 1, true) then return false end
  if is_traffic(said) then
    if is_without_tools and (role ~= 'ai' or tokens == 0) then return false end
    if roles ~= '' and not string.find(roles, ',tool,', 1, true) then return false end
    if most and tokens > most then
      cut = cut + 1
      return false
    end
  end
  return true
end
local rows = {}
if shows and thread[1] then
  local found = {}
  local function take(id, seq)
    if known[id] or doomed[id] or (is_summarised and (not first or tonumber(seq) < first)) then return end
    found[#found + 1] = {id = id, seq = seq}
  end
  local ranked = redis.call('ZRANGE', KEYS[2], begins, below, 'BYSCORE', 'WITHSCORES')
  for at = 1, #ranked, 2 do take(ranked[at], ranked[at + 1]) end
  for _, id in ipairs(back) do
    local seq = redis.call('ZSCORE', KEYS[7], id)
    if begins == '-inf' or tonumber(seq) >= tonumber(begins) then take(id, seq) end
  end
  if #back > 0 then table.sort(found, function(a, b) return tonumber(a.seq) < tonumber(b.seq) end) end
  for start = 1, #found, 500 do
    local ids = {}
    for at = start, math.min(start + 499, #found) do ids[#ids + 1] = found[at].id end
    for at, value in ipairs(redis.call('HMGET', KEYS[3], unpack(ids))) do
      local one = found[start + at - 1]
      if is_shown(one.id, one.seq, value) then
        rows[#rows + 1] = one.id
        rows[#rows + 1] = one.seq
        rows[#rows + 1] = value
      end
    end
  end
end

-- what is known of the entries
local spoken_at = {}
if first and #entries > 0 then
  local last = first
  for _, entry in ipairs(entries) do last = math.max(last, entry.seq or first) end
  for _, said in ipairs(parsed(redis.call('ZRANGE', KEYS[5], first, last, 'BYSCORE'))) do spoken_at[said.seq] = said end
  for _, said in ipairs(behind) do spoken_at[said.seq] = said end
end
local ids, seqs, uptos, changed, refused = {}, {}, {}, {}, {}
for at, entry in ipairs(entries) do
  local said = entry.seq and spoken_at[entry.seq]
  ids[at], seqs[at], uptos[at] = entry.main or entry.known or '', entry.seq or -1, said and said.upto or -1
  changed[at] = said and said.words ~= entry.words and 1 or 0
  refused[at] = 0
  if thread[2] and entry.seq and not said then
    refused[at] = string.sub(said_and_state(entry.known), -1) == '!' and 1 or 0
  end
end
local left_seqs = {}
for seq in pairs(gone) do left_seqs[#left_seqs + 1] = seq end
return {start - 1, cut, left, left_seqs, back, marks, ids, seqs, uptos, changed, refused, rows}
