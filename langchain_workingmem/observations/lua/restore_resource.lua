-- Writes an imported log of a resource, unless there is one.
-- KEYS[1] tombstone of the resource (STRING)  KEYS[2] its log (HASH)
-- ARGV  origin of the revision, manifest, last number and id that are taken, number of threads, of each its tag and the epoch
--       at which its messages were read, then <id>|<sources>|<JSON> of each observation, which are numbered from 1
-- Reply 1, 0 if there is a log, -1 if messages were edited or deleted meanwhile; the present manifest; WMDELETED.
if redis.call('EXISTS', KEYS[1]) == 1 then return redis.error_reply('WMDELETED the resource is being deleted') end
if redis.call('HEXISTS', KEYS[2], 'revision') == 1 then return {0, redis.call('HGET', KEYS[2], 'present')} end
local last = 4 + 2 * ARGV[4]
for at = 5, last, 2 do
  if tonumber(redis.call('HGET', KEYS[2], 'epoch:' .. ARGV[at]) or 0) > tonumber(ARGV[at + 1]) then return {-1, ''} end
end
write_log(KEYS[2], ARGV[2], ARGV[1], ARGV[3], last + 1)
return {1, ARGV[2]}
