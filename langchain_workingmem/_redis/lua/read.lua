-- Reads what a turn shows of a thread, and what the thread knows of the caller's list.
-- ARGV  1 {user, ids, said, spoken, last, step, kinds, tokens, question, without, uncovered}
--   ids     of the caller's list: then `located` has the seqs of each, `deleted` digests of deleted ones, `aliases` the
--           stored ids of others, `rows` the facts of current messages from the first on, `others` of superseded ones
--   said    number of questions and answers in the list without id, `spoken` whether an id is of one: where more than
--           one is unknown, the newest 200 current and 200 superseded ones are added; `is_all`: that is all
--   kinds   reads a history: at least `last` of q, a or both, fewer than `step` more, and the tool traffic between;
--           fewer beyond `tokens` (`cut`); nothing from `question` on, nothing in the ranges `without` (pairs of seqs)
--   uncovered  leaves out what derived rows of this kind cover, too; `rows_revision` says by which rows
-- Reply {next_seq, version, created_at, located, deleted, aliases, rows, others, is_all, shown, begins, cut, newest,
--       rows_revision}, and bodies of those `shown` (facts, the newest first) that the caller's list does not have
local thread = redis.call('HMGET', KEYS[1], 'user', 'next_seq', 'version', 'created_at')
local reason = refusal(head.user, thread[1])
if reason or not thread[1] then return {cjson.encode({refused = reason}), {}} end
local found = {next_seq = tonumber(thread[2]), version = tonumber(thread[3] or 0), created_at = thread[4], cut = 0}
local question_seq, has = nil, {} -- of the message `question`; seqs that the caller has

-- Adds the facts of the newest 200 questions and answers of a set; returns whether these are all.
local function add_said(rows, key)
  local newest, number = redis.call('ZRANGE', key, 0, 999, 'REV'), 0
  for _, facts in ipairs(newest) do
    if number < 200 and string.match(facts, '^%d+:[qa]') then rows[#rows + 1], number = facts, number + 1 end
  end
  return #newest < 1000 and number < 200
end

if head.ids then
  local located, deleted, aliases, rows, others, first = {}, {}, {}, {}, {}, nil
  for at, value in ipairs(values_of(KEYS[5], head.ids)) do
    local id, seqs, digest = head.ids[at], locate(value)
    located[at] = seqs
    if digest then deleted[id] = digest end
    aliases[id] = value and string.match(value, '^=(.*)$') or nil
    if id == head.question then question_seq = seqs[1] end
    for _, seq in ipairs(seqs) do
      has[seq], first = true, math.min(first or seq, seq)
      add(others, redis.call('ZRANGE', KEYS[3], seq, seq, 'BYSCORE'))
    end
  end
  if first then rows = redis.call('ZRANGE', KEYS[2], first, '+inf', 'BYSCORE') end
  local unknown = head.said or 0
  for at, spoken in ipairs(head.spoken or {}) do
    if spoken and #located[at] == 0 then unknown = unknown + 1 end
  end
  if unknown > 1 then
    found.is_all = add_said(rows, KEYS[2])
    add_said(others, KEYS[3])
  end
  found.located, found.deleted, found.aliases, found.rows, found.others = located, deleted, aliases, rows, others
end

local without = head.without or {}
if head.uncovered then
  local rows = redis.call('HMGET', KEYS[9], 'covered:' .. head.uncovered, 'revision:' .. head.uncovered)
  local covered = cjson.decode(rows[1] or '[]')
  for at = 1, #covered, 2 do without[#without + 1] = {covered[at], covered[at + 1]} end
  found.rows_revision = rows[2] or ''
end

local REACH = 20 -- questions and answers among which the question of the oldest answer is looked for
table.sort(without, function(one, other) return one[1] < other[1] end)
for at = 2, #without do without[at][2] = math.max(without[at][2], without[at - 1][2]) end -- they may overlap
local shown, said, tokens, traffic = {}, 0, 0, 0 -- `shown`: facts, the newest first
local cut_seq, shown_at_cut = nil, nil -- a boundary, from which on enough is shown; the number shown there
local oldest, oldest_kind, has_question = 0, '', false -- place in `shown` of the oldest question or answer

-- Shows a message, which is older than those before, or leaves it out; returns true if the history ends here.
-- It collects until enough is shown, and goes on while the oldest answer lacks its question.
local function show(facts, seq)
  local digest, size = string.match(facts, '^%d+:([^:]*):(%d+)')
  local kind = string.sub(digest, 1, 1)
  if string.sub(digest, -1) == '!' then return false end -- a provider has refused it
  if kind == '' then -- tool traffic has a budget of its own, and goes without ending the history
    traffic = traffic + size
    if head.tokens and traffic > head.tokens then
      found.cut = found.cut + 1
      return false
    end
  else
    tokens = tokens + size
    if cut_seq and seq < cut_seq then
      shown_at_cut = shown_at_cut or #shown
      if not (oldest_kind == 'a' and head.kinds == 'qa' and seq > cut_seq - REACH * STRIDE) then return true end
    end
    if head.tokens and not head.last and has_question and tokens > head.tokens then
      found.cut = found.cut + redis.call('ZCOUNT', KEYS[2], '-inf', seq)
      return true
    end
    oldest, oldest_kind, has_question = #shown + 1, kind, has_question or kind == 'q'
    if string.find(head.kinds, kind, 1, true) then said = said + 1 end
    if said == head.last then cut_seq = cut_seq or seq - seq % (head.step * STRIDE) end
  end
  shown[#shown + 1] = facts
  return false
end

-- Walks from the question back, and jumps over what is left out. Returns whether the history ends before the thread.
local function walk()
  local top, last = question_seq and '(' .. whole(question_seq) or '+inf', #without
  local some_at_once = head.last and math.min(head.last + head.step + 2, 50) or 50 -- most have no tool traffic
  while true do
    local some = redis.call('ZRANGE', KEYS[2], top, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, some_at_once)
    if #some == 0 then return false end
    for _, facts in ipairs(some) do
      local seq = tonumber(string.match(facts, '^%d+'))
      while last > 0 and without[last][1] > seq do last = last - 1 end
      local is_out = last > 0 and seq <= without[last][2]
      top = '(' .. whole(is_out and without[last][1] or seq)
      if is_out then break end
      if show(facts, seq) then return true end
    end
  end
end

if head.kinds and (head.last == 0 or walk()) then
  local length = oldest_kind == 'q' and oldest or shown_at_cut or #shown -- without tool traffic of the turn before
  for at = #shown, length + 1, -1 do shown[at] = nil end
  found.begins = tonumber(shown[1] and string.match(shown[#shown], '^%d+') or question_seq or found.next_seq)
end
found.newest = redis.call('ZRANGE', KEYS[2], -1, -1)[1] -- also where no id of the list is known
found.shown = shown
local seqs = {}
for _, facts in ipairs(shown) do
  local seq = string.match(facts, '^%d+')
  if not has[tonumber(seq)] then seqs[#seqs + 1] = seq end
end
return {cjson.encode(found), values_of(KEYS[4], seqs)}
