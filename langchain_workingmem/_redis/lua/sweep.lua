-- Does a slice of what longer operations have left to be done about the vectors of a thread.
-- ARGV  most vectors that it looks at
-- Reply 2 when the vectors may expire before the thread, 1 when there is more to do, else 0, and the number of vectors that
--       were deleted.
local within_budget = new_budget(tonumber(ARGV[1]))
local is_late = redis.call('HEXISTS', KEYS[1], 'vectors_expire_first') == 1
if is_late then renew_vectors(within_budget) end -- before all else
local dropped = empty_trash(within_budget)
if redis.call('EXISTS', KEYS[9]) == 0 then dropped = dropped + drop_superseded_vectors(within_budget) end
local behind, trash = unpack(redis.call('HMGET', KEYS[1], 'drop_vectors_from', 'trash'))
if not behind and not trash and not is_late then renew_vectors(within_budget) end
start_renewal() -- the one that is through may have begun long ago, or for a shorter ttl
local left = remaining_work()
return {math.max(left, redis.call('EXISTS', KEYS[9])), dropped}
