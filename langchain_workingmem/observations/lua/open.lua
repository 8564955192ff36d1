-- Reads the oldest messages that are not covered and that the observer may have; writes nothing.
-- ARGV  resource or '', scope, tokens that stay raw at the end of the thread ('': only an unfinished turn does), tokens of a turn
--       from which on its steps are observed while it goes on, tokens of messages to return at most, goal of the run ('': it begins),
--       tokens that wait at least before a goal is taken, failed calls from which on the observer is not asked about a group any
--       more, 1 to read such groups alone
-- Reply goal: the sequence number at which this run ends; that of the question of the last turn (-1: none, or it may be observed
--       as well); 1 if more messages follow before the goal, 2 if the goal parts the last ones from their call, else 0; ranges that
--       were tried; 1 if there are groups that are not asked about; number of the last observation; then id,
--       seq and value of each message; WMOWNER.
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
local reads_given_up = ARGV[9] == '1'
local stored_scope = redis.call('HGET', KEYS[12], 'scope')
if stored_scope and stored_scope ~= ARGV[2] then return redis.error_reply('WMSCOPE ' .. stored_scope) end

-- where the last turn begins, and whether it is answered
local turn_begins, is_answered = math.huge, false
local members = redis.call('ZRANGE', KEYS[5], '+inf', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 100)
for at, member in ipairs(members) do
  local said = parse_said(member)
  local is_question = string.sub(said.words, 1, 1) == 'q'
  if at == 1 then is_answered = not is_question and redis.call('ZCOUNT', KEYS[2], '(' .. said.seq, '+inf') == 0 end
  if not is_question and turn_begins < math.huge then break end
  if is_question then turn_begins = said.seq end
end
if not keep and is_answered then turn_begins = math.huge end

-- Returns where the newest tokens begin that stay raw, and the last turn unless it is long.
local function new_goal()
  local waiting = 0
  if due > 0 then
    each_raw(function(_, _, _, tokens)
      waiting = waiting + tokens
      return waiting >= due
    end, given_up)
  end
  if waiting < due then return 0 end
  local keep_begins, kept, is_full, turn_tokens = math.huge, 0, not keep, 0
  local covered, high, is_done = shown_ranges(KEYS[12]), '+inf', false
  while not is_done do
    local ranked = redis.call('ZRANGE', KEYS[2], high, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 200, 'WITHSCORES')
    is_done = #ranked == 0
    for at = 1, #ranked, 2 do
      local seq = tonumber(ranked[at + 1])
      is_done = is_full and seq < turn_begins
      if is_done then break end
      local range = range_with(covered, seq)
      high = '(' .. (range and as_integer(range[1]) or ranked[at + 1])
      if range then break end -- on before what is covered
      local _, _, _, _, said = string.match(redis.call('HGET', KEYS[3], ranked[at]) or '', HEADER)
      local tokens = tonumber(string.match(said or '', '^%w*/(%d+)') or 0)
      is_full = is_full or kept + tokens > keep
      if not is_full then kept, keep_begins = kept + tokens, seq end
      if seq >= turn_begins then turn_tokens = turn_tokens + tokens end
    end
  end
  if turn_begins < math.huge and turn_tokens <= long then keep_begins = math.min(keep_begins, turn_begins) end
  local last = redis.call('ZRANGE', KEYS[2], '+inf', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  return math.min(keep_begins, tonumber(last or -1) + 1)
end

local reply
local function read_to_goal()
  local taken = 0
  reply = {as_integer(goal), turn_begins == math.huge and -1 or turn_begins, 0,
    redis.call('HGET', KEYS[12], 'tried') or '', #given_up > 0 and 1 or 0,
    tonumber(redis.call('HGET', KEYS[12], 'next') or 0)}
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
  end, reads_given_up and subtract_ranges(ALL, given_up) or given_up, observed_ranges())
end
if reads_given_up then goal, turn_begins, most = 2 ^ 53, math.huge, math.huge end
if goal then read_to_goal() end
if not goal or (#reply == 6 and not reads_given_up) then
  goal = new_goal()
  read_to_goal()
end
return reply
