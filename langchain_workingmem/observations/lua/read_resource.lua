-- Reads the log of a resource.
-- KEYS[1] its tombstone (STRING)  KEYS[2] its log (HASH)
-- ARGV  a thread as a tag, version and next number that the caller knows
-- Reply what read_log returns; the last batch that the thread has published, and the epoch of what was forgotten of it; what is
--       hidden on the branches of threads: <tag>:<ranges>;...; usage: name, value, ...; tokens that wait in all threads; time (us)
--       and origin of the present revision.
local fields = redis.call('HMGET', KEYS[2], 'batch:' .. ARGV[1], 'epoch:' .. ARGV[1], 'hidden', 'waiting')
return {read_log(KEYS[2], ARGV[2], tonumber(ARGV[3])), fields[1] or '0', fields[2] or '0', fields[3] or '', usage_of(KEYS[2]),
  fields[4] or '0', made_of(KEYS[2])}
