#!lua flags=allow-oom
-- Notes that values know how the branches of their thread have moved.
-- ARGV  `moves` and `unforgotten` as they were read
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], 'moves_told', ARGV[1])
if redis.call('HGET', KEYS[1], 'unforgotten') == ARGV[2] then redis.call('HDEL', KEYS[1], 'unforgotten') end
return 1
