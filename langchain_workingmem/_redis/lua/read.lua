-- Reads what a turn shows of a thread, and what the thread knows of the caller's list.
-- ARGV  1 {user, ids, said, spoken, last, step, kinds, tokens, asked, without, uncovered, covered}
--   ids     of the caller's list: then `located` has the seqs of each, `deleted` the words of deleted ones, `rows` the
--           facts of all current messages from the first of them on, and `others` of the superseded ones among them
--   said    number of questions and answers in the list without id, `spoken` whether an id is of one: where more than
--           one is unknown, the newest 200 current and 200 superseded ones are added; `is_all`: that is all
--   kinds   reads a history: at least `last` of q, a or both, fewer than `step` more, and the tool traffic between;
--           fewer beyond `tokens`; nothing at or behind the message `asked`, nothing in the ranges `without`
--   uncovered  leaves out what derived rows of this kind cover; `rows_revision` says by which rows
--   covered    the same as pairs of seqs
-- Reply {next_seq, version, created_at, located, deleted, rows, others, is_all, shown, begins, cut, newest,
--       rows_revision}, and bodies of those `shown` (facts) that the caller's list does not have. The cost is theirs.
local thread = redis.call('HMGET', KEYS[1], 'user', 'next_seq', 'version', 'created_at')
local no = refusal(head.user, thread[1])
if no or not thread[1] then return {cjson.encode({refused = no}), {}} end
local found = {next_seq = tonumber(thread[2]), version = tonumber(thread[3] or 0), created_at = thread[4]}
local below = nil -- the seq of the message `asked`
local has = {} -- seqs that the caller has

local function add_rows(rows, key, ...)
  for _, facts in ipairs(redis.call('ZRANGE', key, ...)) do rows[#rows + 1] = facts end
end

-- Adds the facts of the newest 200 questions and answers of a set; returns whether these are all.
local function add_said(rows, key)
  local number = 0
  for from = 0, math.huge, 100 do
    local some = redis.call('ZRANGE', key, from, from + 99, 'REV')
    for _, facts in ipairs(some) do
      if string.match(facts, '^%d+:[qa]') then
        if number == 200 then return false end
        rows[#rows + 1], number = facts, number + 1
      end
    end
    if #some < 100 then return true end
  end
end

if head.ids then
  local located, deleted, rows, others, first = {}, {}, {}, {}, nil
  local values = values_of(KEYS[5], head.ids)
  for at, id in ipairs(head.ids) do
    local seqs, words = locate(values[at])
    located[at] = seqs
    if words then deleted[id] = words end
    if id == head.asked then below = seqs[1] end
    for _, seq in ipairs(seqs) do
      has[seq], first = true, math.min(first or seq, seq)
      if redis.call('ZCOUNT', KEYS[2], seq, seq) == 0 then add_rows(others, KEYS[3], seq, seq, 'BYSCORE') end
    end
  end
  if first then add_rows(rows, KEYS[2], first, '+inf', 'BYSCORE') end
  local unknown = head.said or 0
  for at, spoken in ipairs(head.spoken or {}) do
    if spoken and #located[at] == 0 then unknown = unknown + 1 end
  end
  if unknown > 1 then
    found.is_all = add_said(rows, KEYS[2])
    add_said(others, KEYS[3])
  end
  found.located, found.deleted, found.rows, found.others = located, deleted, rows, others
end

local covered = head.covered or {} -- pairs of seqs
if head.uncovered then
  local kind = head.uncovered
  local rows = values_of(KEYS[9], {'covered:' .. kind, 'revision:' .. kind})
  found.rows_revision = rows[2] or ''
  for low, high in string.gmatch(rows[1] or '', '(%d+)-(%d+)') do
    covered[#covered + 1] = {tonumber(low), tonumber(high)}
  end
end

-- Calls `take` with facts and seq of each message below `asked` that is not covered, newest first, until that is true.
local function walk(take)
  local top, at = below and '(' .. whole(below) or '+inf', #covered
  while true do
    local seq
    for _, facts in ipairs(redis.call('ZRANGE', KEYS[2], top, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 50)) do
      seq = tonumber(string.match(facts, '^%d+'))
      while at > 0 and covered[at][1] > seq do at = at - 1 end
      if at > 0 and seq <= covered[at][2] then -- go on below what is covered
        seq = covered[at][1]
        break
      end
      if take(facts, seq) then return true end
    end
    if not seq then return false end
    top = '(' .. whole(seq)
  end
end

local function is_left_out(seq)
  for _, range in ipairs(head.without or {}) do
    if seq >= range[1] and seq <= range[2] then return true end
  end
end

-- Stops after `last` messages, at the next boundary of a step. If the oldest is an answer, it looks for its question
-- among GROWTH more, else it ends at the boundary. Without `last` it ends at the oldest question that `tokens` allow.
local GROWTH = 20
local shown = {} -- facts, the newest first
local said, tokens, traffic, grown = 0, 0, 0, 0
-- places in `shown`: of the oldest that was said, and where enough is
local oldest, enough_at, step, has_question = 0, nil, nil, false
found.cut = 0 -- what does not fit into `tokens`

-- Shows a message; returns true to stop walking.
local function show(facts, seq)
  local words, size = string.match(facts, '^%d+:([^:]*):(%d+)')
  local kind, own_step = string.sub(words, 1, 1), math.floor(seq / STRIDE / head.step)
  if is_left_out(seq) or string.sub(words, -1) == '!' then return false end -- '!': a guard refused it
  if kind == '' then -- tool traffic has a budget of its own, and goes without ending the history
    traffic = traffic + size
    if head.tokens and traffic > head.tokens then
      found.cut = found.cut + 1
      return false
    end
  else
    local counts = string.find(head.kinds, kind, 1, true)
    if counts and said >= (head.last or math.huge) and (enough_at or own_step < step) then
      enough_at = enough_at or #shown -- this message is of an older step, and not needed
      if head.kinds ~= 'qa' or grown == GROWTH or string.match(shown[oldest], '^%d+:q') then return true end
      grown = grown + 1 -- the history would begin with an answer: look for its question
    end
    tokens = tokens + size
    if head.tokens and not head.last and has_question and tokens > head.tokens then
      found.cut, enough_at = found.cut + redis.call('ZCOUNT', KEYS[2], '-inf', seq), oldest
      return true
    end
    if counts then said, step = said + 1, own_step end
    oldest, has_question = #shown + 1, has_question or kind == 'q'
  end
  shown[#shown + 1] = facts
  return enough_at and kind == 'q' -- which has been looked for
end

if head.kinds then
  local is_done = head.last == 0 or walk(show)
  local last = enough_at or #shown
  if enough_at and is_done and string.match(shown[oldest] or '', '^%d+:q') then last = oldest end
  local ordered = {}
  for at = last, 1, -1 do ordered[#ordered + 1] = shown[at] end
  shown = ordered
  local begins = shown[1] and string.match(shown[1], '^%d+')
  if is_done or enough_at then found.begins = tonumber(begins or below or found.next_seq) end
end
-- so that a thread is known not to be empty, also where no id of the list is
found.newest = redis.call('ZRANGE', KEYS[2], -1, -1)[1]
found.shown = shown
local seqs = {}
for _, facts in ipairs(shown) do
  local seq = string.match(facts, '^%d+')
  if not has[tonumber(seq)] then seqs[#seqs + 1] = seq end
end
return {cjson.encode(found), values_of(KEYS[4], seqs)}
