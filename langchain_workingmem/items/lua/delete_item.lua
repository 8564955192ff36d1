-- Deletes an item of a store with its vectors.
-- KEYS  item (HASH), prefix of its further vectors (HASHes)
-- ARGV  none
-- Reply 1, or 0 when there was no item
for number = 1, (redis.call('HGET', KEYS[1], 'vectors') or 0) - 1 do
  redis.call('DEL', KEYS[2] .. number)
end
return redis.call('DEL', KEYS[1])
