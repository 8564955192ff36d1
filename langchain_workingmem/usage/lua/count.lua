-- Adds to the counters of a user, unless it is being deleted. A counter that is 0 again goes.
-- KEYS  1 tombstone  2 counters (HASH)      ARGV  1 ttl in ms or ''; then names and numbers
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
for at = 2, #ARGV, 2 do
  if redis.call('HINCRBY', KEYS[2], ARGV[at], ARGV[at + 1]) <= 0 then redis.call('HDEL', KEYS[2], ARGV[at]) end
end
if ARGV[1] ~= '' then redis.call('PEXPIRE', KEYS[2], ARGV[1]) end
return 1
