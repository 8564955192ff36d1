-- Gives a thread a title that a model made, unless it has one, or the message is gone or has other words by now.
-- ARGV  title, the message that it was made from: <words>/<id>; without a title: token of a process, and ms for which no other one
--       asks a model for a title (0: others may)
-- Reply 1 if that was set, else 0; what renew_ttl returns; WMCOVERED
local refusal = write_refusal('')
if refusal then return refusal end
if redis.call('EXISTS', KEYS[1]) == 0 then return {0, 0} end
check_key_types()
if ARGV[1] == '' then
  local token, ends = string.match(redis.call('HGET', KEYS[1], 'titling') or '', '^(.*)/(%d+)$')
  local is_free = not token or token == ARGV[2] or tonumber(ends) <= now()
  if not is_free or redis.call('HEXISTS', KEYS[1], 'title') == 1 then return {0, 0} end
  redis.call('HSET', KEYS[1], 'titling', ARGV[2] .. '/' .. as_integer(now() + ARGV[3] * 1000))
  return {1, 0}
end
redis.call('HDEL', KEYS[1], 'titling')
local titled = has_source(ARGV[2]) and redis.call('HSETNX', KEYS[1], 'title', ARGV[1]) or 0
if titled == 1 then redis.call('HSET', KEYS[1], 'title_from', ARGV[2]) end
return {titled, renew_ttl()}
