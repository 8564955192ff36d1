-- Finds the questions before messages of a thread: of the turns that they belong to.
-- ARGV  user or '', sequence numbers
-- Reply id, seq, value of each question on the current branch, each one time; WMOWNER.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
local reply, known = {}, {}
for at = 2, #ARGV do
  local high, is_found = '(' .. ARGV[at], false
  for _, member in ipairs(redis.call('ZRANGE', KEYS[5], high, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 100)) do
    local said = parse_said(member)
    local is_question = string.sub(said.words, 1, 1) == 'q'
    if is_found and not is_question then break end -- on to what was said before the question
    is_found = is_found or is_question
    local id = is_question and not known[said.seq] and redis.call('ZRANGE', KEYS[2], said.seq, said.seq, 'BYSCORE')[1]
    local value = id and redis.call('HGET', KEYS[3], id)
    if value then
      known[said.seq] = true
      reply[#reply + 1] = id
      reply[#reply + 1] = as_integer(said.seq)
      reply[#reply + 1] = value
    end
  end
end
return reply
