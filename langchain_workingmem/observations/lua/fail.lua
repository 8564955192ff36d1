-- Notes that a model gave no usable answer, and whether nobody asks again before a pause is over.
-- KEYS  of the thread (ThreadKeys.all), or of the user: tombstone, what waits, index
-- ARGV  user or '', token of the lease, 1 if it was the reflector, ms of the first and of the longest pause, failures in
--       a row from which on there is one, pairs of a usage counter and a number
-- Reply ms of the pause; WMOWNER, WMNOTHREAD, WMDELETED.
local key, refusal = lease_key(), log_refusal(ARGV[1])
if refusal then return refusal end
if #KEYS == 3 and redis.call('EXISTS', key) == 0 then return 0 end -- the user was deleted meanwhile
local lease = redis.call('HGET', key, 'lease')
if lease and lease ~= ARGV[2] then -- another process has taken over, and may succeed
  add_usage(key, 7, #ARGV)
  return 0
end
local who = ARGV[3] == '1' and 'reflector_' or ''
local streak = redis.call('HINCRBY', key, who .. 'streak', 1)
local least = tonumber(ARGV[6])
local pause = streak < least and 0 or math.min(ARGV[4] * 2 ^ math.min(streak - least, 30), tonumber(ARGV[5]))
if pause > 0 then redis.call('HSET', key, who .. 'pause_until', as_integer(now() + pause * 1000)) end
add_usage(key, 7, #ARGV)
return pause
