-- Notes how far a keeper has read a copied or imported thread, unless one has read it since.
-- ARGV  thread as a tag, sequence number
-- Reply 1
local refusal = values_refusal('')
if refusal then return refusal end
redis.call('HSETNX', values_key, 'k:' .. ARGV[1], ARGV[2])
raise_version()
return 1
