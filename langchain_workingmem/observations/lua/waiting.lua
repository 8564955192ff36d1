-- Counts tokens that a thread has stored and that no observation covers yet, for the observer of a user.
-- KEYS[1] tombstone of the user (STRING)  KEYS[2] what waits (HASH)  KEYS[3] index of the threads with logs (ZSET)
-- ARGV  the thread as a tag, tokens, 'add' or 'set', tokens at which the observer is due, ttl of the thread in ms ('': it stays)
-- Reply 1 if the observer is due: no other process observes, and no pause after failures is under way
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local field, more = 'waiting:' .. ARGV[1], tonumber(ARGV[2])
if ARGV[3] == 'set' then
  if redis.call('EXISTS', KEYS[2]) == 0 then return 0 end -- the user was deleted meanwhile
  more = more - (redis.call('HGET', KEYS[2], field) or 0)
else
  -- it expires with the last of the threads
  local is_new, expiry = redis.call('EXISTS', KEYS[2]) == 0, redis.call('PEXPIRETIME', KEYS[2])
  redis.call('HSET', KEYS[2], 'newest', ARGV[1])
  if ARGV[5] == '' then
    redis.call('PERSIST', KEYS[2])
    redis.call('PERSIST', KEYS[3])
  elseif is_new or expiry > 0 then
    redis.call('PEXPIREAT', KEYS[2], as_integer(math.max(expiry, as_expiry(math.floor(now() / 1000) + ARGV[5]))))
  end
end
if redis.call('HINCRBY', KEYS[2], field, as_integer(more)) <= 0 then redis.call('HDEL', KEYS[2], field) end
local waiting = redis.call('HINCRBY', KEYS[2], 'waiting', as_integer(more))
if waiting < tonumber(ARGV[4]) then return 0 end
local leased, pause = unpack(redis.call('HMGET', KEYS[2], 'leased_until', 'pause_until'))
return now() > math.max(tonumber(leased or 0), tonumber(pause or 0)) and 1 or 0
