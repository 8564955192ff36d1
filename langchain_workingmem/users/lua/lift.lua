-- Deletes the tombstone of a deletion that is over, unless another deletion has written its own.
-- ARGV  the id of the deletion, as the tombstone holds it
-- Reply 1, or 0 if the tombstone is of another deletion
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
