-- Creates a thread.
-- ARGV  user, then field, value, ... (title, metadata:<key>, ttl)
-- Reply HGETALL of the new thread; WMEXISTS
if redis.call('EXISTS', KEYS[1]) == 1 then return redis.error_reply('WMEXISTS the thread exists') end
check_key_types()
init_thread(as_integer(now()))
redis.call('HSET', KEYS[1], 'user', ARGV[1])
call_in_batches('HSET', KEYS[1], 2, #ARGV)
refresh_labels()
renew_ttl()
return redis.call('HGETALL', KEYS[1])
