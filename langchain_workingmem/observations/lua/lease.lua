-- Takes the lease of the observer on a log, or extends it: then no other process observes there.
-- KEYS  of the thread (ThreadKeys.all), or of the user: tombstone, what waits, index
-- ARGV  user or '', token of the process, ms that the lease lasts (0 ends it), 1 if a good answer ends the pauses, with a user the
--       thread that is observed next as a tag ('': none): its log is found from now on, what an answer took: pairs of a usage
--       counter and a number
-- Reply ms after which the lease of another process ends, 0 if this process has it; ms of a pause of the reflector; failures
--       of the observer in a row; ms of a pause of the observer; WMOWNER, WMNOTHREAD, WMDELETED.
local key, refusal = lease_key(), log_refusal(ARGV[1])
if refusal then return refusal end
local token, leased = unpack(redis.call('HMGET', key, 'lease', 'leased_until'))
local present = now()
if token and token ~= ARGV[2] and tonumber(leased) > present then
  return {math.ceil((leased - present) / 1000), 0, 0, 0}
end
if (#ARGV > 5 or ARGV[3] == '0') and #KEYS == 3 and not token then return {0, 0, 0, 0} end -- the user was deleted meanwhile
add_usage(key, 6, #ARGV)
if ARGV[4] == '1' then redis.call('HDEL', key, 'streak', 'pause_until') end
if ARGV[3] == '0' then
  redis.call('HDEL', key, 'lease', 'leased_until')
  return {0, 0, 0, 0}
end
redis.call('HSET', key, 'lease', ARGV[2], 'leased_until', as_integer(present + ARGV[3] * 1000))
if #KEYS > 3 then redis.call('HSET', KEYS[1], 'covered', 1) end -- whoever deletes the thread also deletes this
if ARGV[5] ~= '' then
  redis.call('ZADD', KEYS[3], as_integer(present), ARGV[5])
  local expiry, at = redis.call('PEXPIRETIME', key), math.floor(present / 1000)
  -- it stays longer: others may renew the threads without telling it
  if expiry > 0 then redis.call('PEXPIREAT', KEYS[3], as_expiry(at + 3 * (expiry - at))) else redis.call('PERSIST', KEYS[3]) end
end
local expiry = #KEYS > 3 and redis.call('PEXPIRETIME', KEYS[1]) or -1
if expiry > 0 then redis.call('PEXPIREAT', key, as_integer(expiry)) end
local reflector, observer, streak = unpack(redis.call('HMGET', key, 'reflector_pause_until', 'pause_until', 'streak'))
local function left(at) return math.max(0, math.ceil(((at or 0) - present) / 1000)) end
return {0, left(reflector), tonumber(streak or 0), left(observer)}
