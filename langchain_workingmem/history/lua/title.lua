-- Gives a thread a title that a model made, unless it has one, or the message is gone or has other words by now.
-- ARGV  title, id of the message that it was made from, its words
-- Reply 1 if that was set, else 0; what renew_ttl returns; WMCOVERED
local refusal = write_refusal('')
if refusal then return refusal end
local seq = redis.call('ZSCORE', KEYS[2], ARGV[2])
local said = seq and redis.call('ZRANGE', KEYS[5], seq, seq, 'BYSCORE')[1]
if not said or parse_said(said).words ~= ARGV[3] then return {0, 0} end
check_key_types()
local titled = redis.call('HSETNX', KEYS[1], 'title', ARGV[1])
if titled == 1 then redis.call('HSET', KEYS[1], 'title_source', seq) end
return {titled, renew_ttl()}
