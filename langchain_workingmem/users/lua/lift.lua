-- Takes a tombstone away when the deletion is over, unless another deletion has put its own there meanwhile.
-- ARGV  what this deletion has written into it
-- Reply 1 when it is gone, 0 when it is another's
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
