-- Adds to what models have taken for a user in the background, unless the user is being deleted, or merged into another one.
-- KEYS  tombstone of the user, its counters (HASH)
-- ARGV  ms until they expire ('': never), pairs of a counter and a number; negative ones take back what was added just before
-- Reply 1, or 0 if there is a tombstone
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
for at = 2, #ARGV, 2 do
  if tonumber(ARGV[at + 1]) > 0 or redis.call('HEXISTS', KEYS[2], ARGV[at]) == 1 then
    if redis.call('HINCRBY', KEYS[2], ARGV[at], ARGV[at + 1]) <= 0 then redis.call('HDEL', KEYS[2], ARGV[at]) end
  end
end
if ARGV[1] ~= '' then
  local seconds, us = unpack(redis.call('TIME'))
  redis.call('PEXPIREAT', KEYS[2], as_integer(math.min(seconds * 1000 + math.floor(us / 1000) + ARGV[1], 9223372036854)))
end
return 1
