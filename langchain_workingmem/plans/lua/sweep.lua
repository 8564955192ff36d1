-- Does a slice of what longer operations have left to be done about the vectors of a thread.
-- ARGV  most vectors that it looks at
-- Reply 1 when there is more to do, else 0, and the number of vectors that were deleted.
local goes_on = slice(tonumber(ARGV[1]))
local dropped = empty_trash(goes_on)
if redis.call('EXISTS', KEYS[9]) == 0 then dropped = dropped + strip(goes_on) end
local behind, trash = unpack(redis.call('HMGET', KEYS[1], 'behind', 'trash'))
if not behind and not trash then tend(goes_on) end
local left = redis.call('EXISTS', KEYS[9]) == 1 or behind or redis.call('HEXISTS', KEYS[1], 'tending') == 1
return {left and 1 or 0, dropped}
