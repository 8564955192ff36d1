#!lua flags=allow-oom
-- Says that a user is being merged into another one, unless it is being deleted, or merged into a third one; or that it is
-- being deleted, whatever was said before.
-- ARGV  how the tombstone begins for that other one ('': a deletion), the id of the merge or of the deletion
-- Reply what the tombstone held before, or nothing; another merge into the same user is taken over
local before = redis.call('GET', KEYS[1])
if not before or string.sub(before, 1, #ARGV[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[1] .. ARGV[2]) end
return before
