-- Finds out where the last turns of a thread begin; writes nothing.
-- ARGV  resource or '', how many of them
-- Reply sequence number of the question that begins the first of them; -1 where the thread has no more turns; WMOWNER.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
local turns, begins, high = 0, -1, '+inf'
while true do
  local members = redis.call('ZRANGE', KEYS[5], high, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 100)
  if #members == 0 then return -1 end
  for _, member in ipairs(members) do
    local said = parse_said(member)
    local is_question = string.sub(said.words, 1, 1) == 'q'
    if not is_question and begins >= 0 then
      turns = turns + 1
      if turns == tonumber(ARGV[2]) then return as_integer(begins) end
    end
    begins, high = is_question and said.seq or -1, '(' .. as_integer(said.seq)
  end
end
