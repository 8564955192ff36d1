-- Reads messages of a thread, and what was said around them.
-- ARGV  user or '', messages before, messages after, then the sequence number of each message
-- Reply title or ''; then for each message that exists its sequence number, and id, seq and value of the messages before it, of
--       itself and of those after it; empty when the thread is gone or belongs to another user.
-- The branch does not matter: a message may be superseded.
local thread = redis.call('HMGET', KEYS[1], 'user', 'title')
if not thread[1] or (ARGV[1] ~= '' and thread[1] ~= ARGV[1]) then return {} end
local before, after = tonumber(ARGV[2]), tonumber(ARGV[3])
local reply = {thread[2] or ''}
local function rows_of(ranked)
  local rows = {}
  for at = 1, #ranked, 2 do
    rows[#rows + 1] = ranked[at]
    rows[#rows + 1] = ranked[at + 1]
    rows[#rows + 1] = redis.call('HGET', KEYS[3], ranked[at])
  end
  return rows
end
local function around(low, high, reverse, count)
  local arguments = {KEYS[5], low, high, 'BYSCORE', 'LIMIT', 0, count, 'WITHSCORES'}
  if reverse then table.insert(arguments, 5, 'REV') end
  local ranked, found = count > 0 and redis.call('ZRANGE', unpack(arguments)) or {}, {}
  for at = 2, #ranked, 2 do
    local seq = ranked[at]
    found[#found + 1] = redis.call('ZRANGE', KEYS[2], seq, seq, 'BYSCORE')[1]
    found[#found + 1] = seq
  end
  return rows_of(found)
end
for at = 4, #ARGV do
  local seq = ARGV[at]
  local id = redis.call('ZRANGE', KEYS[2], seq, seq, 'BYSCORE')[1] or redis.call('ZRANGE', KEYS[7], seq, seq, 'BYSCORE')[1]
  if id then
    reply[#reply + 1] = seq
    reply[#reply + 1] = around('(' .. seq, '-inf', true, before)
    reply[#reply + 1] = rows_of({id, seq})
    reply[#reply + 1] = around('(' .. seq, '+inf', false, after)
  end
end
return reply
