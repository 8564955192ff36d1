-- Goes into the larger variant of turn.lua, before it: the log stands for what it covers on the branch of the list.
-- The last ones of ARGV are for this file: scope of the observations (t or r, '' without the option), version and next number of the
-- log that the caller knows, positions of messages that memory has taken out of the list because a log covered them
-- Reply ranges that are covered, the log (read_log), usage (name, value, ...), tokens that are not covered ('': unknown),
-- coverage_version, title of the thread, where finer lines take the place of some the manifest and number, value, ... of its lines;
-- nothing without the option.
local removed = parse_ranges(table.remove(ARGV))
local known_next, known_version = tonumber(table.remove(ARGV)), table.remove(ARGV)
local scope = table.remove(ARGV)

if removed[1] then
  hooks.left = function(left, gone) return without_removed(left, removed, gone) end
  hooks.was_removed = function(seq) return range_with(removed, seq) end
end

-- The questions of the present turn that are covered: they are shown as they are.
local function covered_questions(turn, covered)
  local questions, is_found = {}, false
  for at = #turn.entries, turn.start, -1 do
    local entry = turn.entries[at]
    local is_question = string.sub(entry.words, 1, 1) == 'q'
    if is_found and not is_question then break end
    is_found = is_found or is_question
    if is_question and entry.seq and range_with(covered, entry.seq) then questions[entry.seq] = true end
  end
  return questions
end

-- Finds out which covered messages the branch of the list does not have; `set` is what is to be shown as it is anyway.
local function hidden_on_branch(turn, covered, set)
  local kept = {}
  for _, id in ipairs(turn.back) do kept[seq_of(redis.call('ZSCORE', KEYS[7], id))] = true end
  add_covered(set, covered, KEYS[7], '-inf', kept)
  for seq in pairs(turn.gone) do set[seq] = range_with(covered, seq) and true or nil end
  if turn.asked then -- what follows the question is not its history, but for the steps of the present turn
    for _, entry in ipairs(turn.entries) do
      if entry.seq then kept[entry.seq] = true end
    end
    kept[turn.asked] = nil
    local later = {}
    add_covered(later, covered, KEYS[2], turn.asked, kept)
    for seq in pairs(later) do
      if not range_with(removed, seq) then set[seq] = true end
    end
  end
  return add_covered_together(ranges_of(set), covered, turn.gone)
end

hooks.cover = function(turn)
  if scope == '' then return {}, range_with, {} end
  local stored_scope, covered, hidden = unpack(redis.call('HMGET', KEYS[12], 'scope', 'covered', 'hidden'))
  local pending, title = unpack(redis.call('HMGET', KEYS[1], 'pending', 'title'))
  local log, view = {'0'}, {}
  covered, hidden = parse_ranges(covered), parse_ranges(hidden)
  if stored_scope == scope then
    local last, questions = covered[#covered], covered_questions(turn, covered)
    if last and (#turn.back > 0 or next(questions) or (turn.asked and turn.asked <= last[2])
        or (turn.first and #turn.left > 0 and turn.first <= last[2])) then
      hidden = hidden_on_branch(turn, covered, questions)
      view = finer_lines(hidden)
    end
    covered, log = subtract_ranges(covered, hidden), read_log(KEYS[12], known_version, known_next)
  else
    covered = {}
  end
  local is_known = pending and string.sub(pending, 1, 1) == scope
  return covered, range_with,
    {write_ranges(covered), log, usage_of(KEYS[12]), is_known and string.sub(pending, 2) or '', coverage_version(), title or '', view}
end
