-- Counts tokens that a thread has stored and that the log of its resource does not cover yet.
-- KEYS[1] tombstone of the resource (STRING)  KEYS[2] its log (HASH)
-- ARGV  the thread as a tag, tokens, 'add' or 'set', tokens at which the observer is due, ttl of the thread in ms ('': unchanged)
-- Reply 1 if the observer is due: no other process observes, and no pause after failures is under way
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local field, more = 'waiting:' .. ARGV[1], tonumber(ARGV[2])
if ARGV[3] == 'set' then
  if redis.call('EXISTS', KEYS[2]) == 0 then return 0 end -- the resource was deleted meanwhile
  more = more - (redis.call('HGET', KEYS[2], field) or 0)
else
  -- the thread was renewed; if it has expired before, publish.lua finds out
  local expiry, ttl = expiry_of(KEYS[2], ARGV[1])
  local present, is_new = math.floor(now() / 1000), is_new_log(KEYS[2])
  ttl = ARGV[5] ~= '' and ARGV[5] or ttl
  if expiry and tonumber(expiry) > present then note_expiry(KEYS[2], ARGV[1], as_expiry(present + ttl), ttl) end
  redis.call('HSET', KEYS[2], 'newest', ARGV[1])
  keep_log(KEYS[2], ttl and present + ttl, is_new)
end
if redis.call('HINCRBY', KEYS[2], field, as_integer(more)) <= 0 then redis.call('HDEL', KEYS[2], field) end
local waiting = redis.call('HINCRBY', KEYS[2], 'waiting', as_integer(more))
if waiting < tonumber(ARGV[4]) then return 0 end
local leased, pause = unpack(redis.call('HMGET', KEYS[2], 'leased_until', 'pause_until'))
return now() > math.max(tonumber(leased or 0), tonumber(pause or 0)) and 1 or 0
