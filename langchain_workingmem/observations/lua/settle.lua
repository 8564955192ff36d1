-- Forgets a thread that has expired, or notes that it has not.
-- KEYS[1] tombstone of the resource (STRING)  KEYS[2] its log (HASH)
-- ARGV  the thread as a tag, created_at of the thread that the log knows, and that of the present one ('': there is none), its
--       expiry (ms since the epoch, or -1) and ttl ('' without one)
-- Reply what the forgotten observations cite beside: tag, seq, ...; WMDELETED.
if redis.call('EXISTS', KEYS[1]) == 1 then return redis.error_reply('WMDELETED the resource is being deleted') end
local key, tag, known, present, expiry = KEYS[2], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
if (redis.call('HGET', key, 'born:' .. tag) or '') ~= known then return {} end
if present == known then
  if ARGV[5] == '' then expiry = nil end
  note_expiry(key, tag, expiry, ARGV[5])
  keep_log(key, expiry, false)
  return {}
end
if present == '' then
  local waiting = redis.call('HGET', key, 'waiting:' .. tag)
  if waiting then redis.call('HINCRBY', key, 'waiting', -waiting) end
  redis.call('HDEL', key, 'waiting:' .. tag, 'epoch:' .. tag)
end
note_expiry(key, tag)
redis.call('HDEL', key, 'born:' .. tag, 'batch:' .. tag)
return purge_log(key, tag, ALL)
