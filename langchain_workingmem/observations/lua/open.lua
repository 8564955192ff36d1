-- Reads the oldest messages that are not covered and that the observer may have; writes nothing.
-- ARGV  user or '', scope, tokens that stay raw at the end of the thread ('': only an unfinished turn does), tokens of a turn
--       from which on its steps are observed while it goes on, tokens of messages to return at most, goal of the run ('': it begins),
--       tokens that wait at least before a goal is taken, failed calls from which on the observer is not asked about a group any
--       more, 1 to read such groups alone, tokens that are read ahead ('': none)
-- Reply goal: the sequence number at which this run ends; that of the question of the last turn (-1: none, or it may be observed
--       as well); 1 if more messages follow before the goal, 2 if the goal parts the last ones from their call, else 0; ranges that
--       were tried; 1 if there are groups that are not asked about; 1 if a new goal was taken and is due; 1 if something was read ahead; then id, seq and value of each message; WMOWNER.
-- The goal is taken once: a run goes down to it, whatever is said meanwhile. If nothing is left before it, a new one is taken.
-- The first message always fits, and tool results come with their call.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
local keep, long, most, goal, due =
  tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local given_up = {}
for _, entry in ipairs(parse_tried()) do
  if entry[3] >= tonumber(ARGV[8]) then given_up[#given_up + 1] = {entry[1], entry[2]} end
end
local reads_given_up, batch = ARGV[9] == '1', tonumber(ARGV[10])
local stored_scope = redis.call('HGET', KEYS[12], 'scope')
if stored_scope and stored_scope ~= ARGV[2] then return redis.error_reply('WMSCOPE ' .. stored_scope) end

local turn_begins, is_answered = ahead.present_turn()
if not keep and is_answered then turn_begins = math.huge end
local read_ahead, ahead_tokens = ahead.ranges()

-- Returns where the newest tokens begin that stay raw, and the last turn unless it is long; and whether it is due.
local function new_goal()
  local waiting, is_due = 0, true
  if due > 0 then
    each_raw(function(_, _, _, tokens)
      waiting = waiting + tokens
      return waiting >= due
    end, given_up)
    is_due = waiting >= due
    if not is_due and not (batch and waiting >= due / 2 and waiting - ahead_tokens >= batch) then return 0, false end
  end
  local keep_begins, kept, is_full, turn_tokens = math.huge, 0, not keep, 0
  ahead.each_newest(function(seq, tokens)
    if is_full and seq < turn_begins then return true end
    is_full = is_full or kept + tokens > keep
    if not is_full then kept, keep_begins = kept + tokens, seq end
    if seq >= turn_begins then turn_tokens = turn_tokens + tokens end
  end)
  local is_long = turn_tokens > (is_due and long or long / 2)
  if turn_begins < math.huge and not is_long then keep_begins = math.min(keep_begins, turn_begins) end
  local last = redis.call('ZRANGE', KEYS[2], '+inf', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  return math.min(keep_begins, tonumber(last or -1) + 1), is_due
end

local reply, is_due
local function read_to_goal()
  local taken = 0
  reply = {as_integer(goal), turn_begins == math.huge and -1 or turn_begins, 0,
    redis.call('HGET', KEYS[12], 'tried') or '', #given_up > 0 and 1 or 0, is_due and 1 or 0, #read_ahead > 0 and 1 or 0}
  each_raw(function(id, seq, value, tokens)
    local role = role_at(value, (select(7, string.match(value, HEADER))))
    local is_result = role == 'tool' or role == 'function'
    if seq >= goal or (taken > 0 and taken + tokens > most and not is_result) then
      reply[3] = seq < goal and 1 or is_result and 2 or 0
      return true
    end
    taken = taken + tokens
    reply[#reply + 1] = id
    reply[#reply + 1] = as_integer(seq)
    reply[#reply + 1] = value
  end, reads_given_up and subtract_ranges(ALL, given_up)
    or add_ranges(given_up, read_ahead), shown_ranges(KEYS[12]))
end
if reads_given_up then goal, turn_begins, most = 2 ^ 53, math.huge, math.huge end
if goal then read_to_goal() end
if not goal or (#reply == 7 and not reads_given_up) then
  goal, is_due = new_goal()
  read_to_goal()
end
return reply
