-- Gives a thread a title, unless it has one.
-- ARGV  title
-- Reply 1 if it was set, else 0 (the thread has a title, or is gone); what renew_ttl returns
if redis.call('EXISTS', KEYS[1]) == 0 then return {0, 0} end
check_key_types()
local titled = redis.call('HSETNX', KEYS[1], 'title', ARGV[1])
return {titled, renew_ttl()}
