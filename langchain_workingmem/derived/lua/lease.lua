-- Takes, prolongs or gives back the lease of the worker of a kind, or lets all workers pause after a failure.
-- ARGV  1 {user, kind, token, what ('take', 'give', 'fail'), ms (of the lease, or of the first pause), most (ms of a pause), counts, about,
--       force (takes it although there is a pause)}
--   a failure that `counts` is counted until rows are committed: workers halve what they read for each
-- Reply {wait, pause}: ms until it is free, 0 if the caller has it, -1 if there is no thread; whether workers pause
-- A lease holds its length, too: if the clock was set back since, the rest is longer than that, and the lease is free.
local field, time = 'lease:' .. head.kind, redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local owner = redis.call('HGET', KEYS[1], 'user')
local no = refusal(head.user, owner)
if no then return {cjson.encode({refused = no})} end
if not owner then return {cjson.encode({wait = -1})} end
local holder, till, length = string.match(redis.call('HGET', KEYS[9], field) or '', '^(%S+) (%d+) (%d+)$')
local is_held = holder and holder ~= head.token and till - now > 0 and till - now <= tonumber(length)
if head.what == 'give' then
  if holder == head.token then redis.call('HDEL', KEYS[9], field) end
  return {cjson.encode({wait = 0})}
end
if is_held and not (head.force and holder == 'pause') then return {cjson.encode({wait = till - now, pause = holder == 'pause'})} end
local ms, failures = head.ms, nil
if head.what == 'fail' then
  local streak = redis.call('HINCRBY', KEYS[9], 'streak:' .. head.kind, 1)
  ms = math.min(head.most, ms * 2 ^ (streak - 1))
  if head.counts then
    redis.call('HINCRBY', KEYS[9], 'failures:' .. head.kind, 1)
    redis.call('HSET', KEYS[9], 'failed:' .. head.kind, head.about)
  end
end
redis.call('HSET', KEYS[9], field, (head.what == 'fail' and 'pause' or head.token) .. ' ' .. whole(now + ms) .. ' ' .. whole(ms))
local expiry = redis.call('PEXPIRETIME', KEYS[1])
if expiry > 0 then redis.call('PEXPIREAT', KEYS[9], whole(expiry)) end
return {cjson.encode({wait = 0})}
