-- ARGV  resource, then field, value, ... (title, metadata:<key>, ttl)
-- Reply HGETALL of the new thread; WMEXISTS when there is one already.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.error_reply('WMEXISTS the thread exists')
end
check_kinds()
local at = whole(now())
born(at)
redis.call('HSET', KEYS[1], 'resource', ARGV[1])
with_arguments('HSET', KEYS[1], 2, #ARGV)
refresh_labels()
renew_ttl()
return redis.call('HGETALL', KEYS[1])
