-- Writes what observations cover of a copied or imported thread, and its log, unless something is observed there already.
-- ARGV  resource, scope, origin of the revision, manifest, last number and id that are taken, number of cited messages, id and
--       seq of each, then <id>|<sources>|<JSON> of each
--       observation, which are numbered from 1
-- Reply 1, 0 if something is observed there, -1 if a cited message is gone; what renew_ttl returns; WMOWNER, WMNOTHREAD.
local refusal = log_refusal(ARGV[1])
if refusal then return refusal end
check_key_types()
local key = KEYS[12]
if redis.call('HEXISTS', key, 'scope') == 1 then return {0, 0} end
local last = 6 + 2 * ARGV[6]
for at = 7, last, 2 do
  local seq = redis.call('ZSCORE', KEYS[2], ARGV[at]) or redis.call('ZSCORE', KEYS[7], ARGV[at])
  if tonumber(seq or -1) ~= tonumber(ARGV[at + 1]) then return {-1, 0} end
end
redis.call('HSET', key, 'next', ARGV[5])
for at = last + 1, #ARGV do add_observed(at - last, ARGV[at]) end
write_revision(key, ARGV[4], ARGV[3])
cover(ARGV[4])
redis.call('HSET', key, 'scope', ARGV[2])
redis.call('HSET', KEYS[1], 'covered', 1)
redis.call('HDEL', KEYS[1], 'pending')
refresh_hidden()
return {1, renew_ttl()}
