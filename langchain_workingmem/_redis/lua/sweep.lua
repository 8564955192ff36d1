#!lua flags=allow-oom
-- Does a slice of the work on vectors that other scripts have left: expiry, owner, and vectors to delete.
-- ARGV  number of vectors at most
-- Reply 2 if vectors may expire before the thread, 1 if there is more to do, else 0; number of vectors deleted; WMCOVERED
local refusal = write_refusal('')
if refusal then return refusal end
local within_budget = new_budget(tonumber(ARGV[1]))
local is_urgent = redis.call('HEXISTS', KEYS[1], 'vectors_expire_first') == 1
if is_urgent then renew_vectors(within_budget) end
local dropped = empty_trash(within_budget)
if redis.call('EXISTS', KEYS[9]) == 0 then dropped = dropped + drop_superseded_vectors(within_budget) end
local drop_from, trash = unpack(redis.call('HMGET', KEYS[1], 'drop_vectors_from', 'trash'))
if not drop_from and not trash and not is_urgent then renew_vectors(within_budget) end
start_renewal() -- the last one may have started long ago, or for a shorter ttl
return {math.max(remaining_work(), redis.call('EXISTS', KEYS[9])), dropped}
