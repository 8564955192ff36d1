-- Reads the oldest messages that are not covered and that the observer may have; writes nothing.
-- ARGV  resource or '', scope, tokens that stay raw at the end of the thread ('': only an unfinished turn does), tokens of a turn
--       from which on its steps are observed while it goes on, tokens of messages to return at most
-- Reply sequence number of the question of the last turn (-1:
--       none, or it may be observed as well), 1 if the next message belongs to the last returned one, then id, seq and value of
--       each message; WMOWNER.
-- The first message always fits, and tool results come with their call.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
local keep, long, most = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
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

-- where the newest tokens begin that stay raw, and how long the last turn is
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

local ends = keep_begins
if not keep and is_answered then
  ends, turn_begins = math.huge, math.huge
elseif turn_tokens <= long then
  ends = math.min(ends, turn_begins)
end
local reply, taken, is_cut = {turn_begins == math.huge and -1 or turn_begins, 0}, 0, 0
each_raw(function(id, seq, value, tokens)
  local rest = select(7, string.match(value, HEADER))
  local role = role_at(value, rest)
  local is_result = role == 'tool' or role == 'function'
  if seq >= ends or (taken > 0 and taken + tokens > most and not is_result) then
    is_cut = is_result and 1 or 0
    return true
  end
  taken = taken + tokens
  reply[#reply + 1] = id
  reply[#reply + 1] = as_integer(seq)
  reply[#reply + 1] = value
end)
reply[2] = is_cut
return reply
