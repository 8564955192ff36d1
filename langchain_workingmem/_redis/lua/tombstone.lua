#!lua flags=allow-oom
-- 'claim' notes that a user is being deleted, over anything, or merged, over nothing or a merge into the same user.
-- 'lift' takes back what this very deletion or merge has noted.
-- KEYS  1 tombstone (STRING)
-- ARGV  1 claim or lift  2 how the tombstone begins ('': a deletion)  3 id of the deletion or merge
-- Reply what the tombstone held before, or nothing
local before = redis.call('GET', KEYS[1])
if ARGV[1] == 'lift' then
  if before == ARGV[2] .. ARGV[3] then redis.call('DEL', KEYS[1]) end
elseif not before or string.sub(before, 1, #ARGV[2]) == ARGV[2] then
  redis.call('SET', KEYS[1], ARGV[2] .. ARGV[3])
end
return before
