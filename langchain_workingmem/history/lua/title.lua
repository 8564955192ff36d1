-- Gives a thread a title that a model made, unless it has one, or the message is gone or has other words by now.
-- ARGV  title, the message that it was made from: <words>/<id>
-- Reply 1 if it was set, else 0; what renew_ttl returns; WMCOVERED
local refusal = write_refusal('')
if refusal then return refusal end
if redis.call('EXISTS', KEYS[1]) == 0 then return {0, 0} end
check_key_types()
local titled = has_source(ARGV[2]) and redis.call('HSETNX', KEYS[1], 'title', ARGV[1]) or 0
if titled == 1 then redis.call('HSET', KEYS[1], 'title_from', ARGV[2]) end
return {titled, renew_ttl()}
