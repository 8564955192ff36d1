-- Does a slice of what longer operations have left to be done about the vectors of a thread.
-- ARGV  most vectors that it looks at
-- Reply 2 when the vectors may expire before the thread, 1 when there is more to do, else 0, and the number of vectors that
--       were deleted.
local goes_on = slice(tonumber(ARGV[1]))
local is_late = redis.call('HEXISTS', KEYS[1], 'late') == 1
if is_late then tend(goes_on) end -- before all else
local dropped = empty_trash(goes_on)
if redis.call('EXISTS', KEYS[9]) == 0 then dropped = dropped + strip(goes_on) end
local behind, trash = unpack(redis.call('HMGET', KEYS[1], 'behind', 'trash'))
if not behind and not trash and not is_late then tend(goes_on) end
begin_round() -- the one that is through may have begun long ago, or for a shorter ttl
local left = what_is_left()
return {math.max(left, redis.call('EXISTS', KEYS[9])), dropped}
