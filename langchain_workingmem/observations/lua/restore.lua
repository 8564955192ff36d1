-- Writes what observations cover of a copied or imported thread, and its log, unless something is observed there already. A long log is
-- written in several steps: its lines are listed with the last one, and until then the field `restoring` says that more follow.
-- ARGV  user, scope, origin of the revision, manifest ('': more lines follow), last number and id that are taken, number of the first
--       line of this step, version that the step before has replied, number of cited messages, id and seq of each, then
--       <id>|<sources>|<JSON> of each observation
-- Reply 1, 0 if something is observed there, -1 if a cited message is gone, or has changed since the step before; what renew_ttl
--       returns, version; WMOWNER, WMNOTHREAD.
local refusal = log_refusal(ARGV[1])
if refusal then return refusal end
check_key_types()
local key, first = KEYS[12], tonumber(ARGV[6])
local scope, version, restoring, present = unpack(redis.call('HMGET', key, 'scope', 'version', 'restoring', 'present'))
if first == 1 and scope and (not restoring or present ~= '') then return {0, 0, ''} end
if first > 1 and version ~= ARGV[7] then return {-1, 0, ''} end
local last = 8 + 2 * ARGV[8]
for at = 9, last, 2 do
  local seq = redis.call('ZSCORE', KEYS[2], ARGV[at]) or redis.call('ZSCORE', KEYS[7], ARGV[at])
  if tonumber(seq or -1) ~= tonumber(ARGV[at + 1]) then return {-1, 0, ''} end
end
if first == 1 then
  redis.call('UNLINK', key) -- what an interrupted one has left
  redis.call('HSET', key, 'scope', ARGV[2], 'next', ARGV[5], 'revision', 0, 'present', '', 'restoring', 1)
  redis.call('HSET', KEYS[1], 'covered', 1)
  raise_version(key)
end
for at = last + 1, #ARGV do add_line(first + at - last - 1, ARGV[at]) end
if ARGV[4] ~= '' then
  redis.call('HDEL', key, 'restoring')
  write_revision(key, ARGV[4], ARGV[3])
  cover(ARGV[4])
  redis.call('HDEL', KEYS[1], 'pending')
  refresh_hidden()
end
return {1, renew_ttl(), coverage_version()}
