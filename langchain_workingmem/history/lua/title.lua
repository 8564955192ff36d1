-- Gives a thread a title unless it has one: whoever named it meanwhile has won.
-- ARGV  title
-- Reply 1 when it was set, else 0 (titled already, or gone); what `renew_ttl` returns
if redis.call('EXISTS', KEYS[1]) == 0 then return {0, 0} end
check_key_types()
local titled = redis.call('HSETNX', KEYS[1], 'title', ARGV[1])
return {titled, renew_ttl()}
