-- Deletes what is left of the files of an owner whose files another one has now.
-- ARGV  how the tombstone of this merge begins
-- Reply 1, or 0: another deletion has taken its place, so what there is now may be new
local tombstone = redis.call('GET', KEYS[1])
if not tombstone or string.sub(tombstone, 1, #ARGV[1]) ~= ARGV[1] then return 0 end
redis.call('UNLINK', paths_key, texts_key, notes_key, done_key)
return 1
