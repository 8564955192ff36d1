-- ARGV  the present resource, the new resource
-- Reply HGETALL of the thread, empty when there is none; WMOWNER. Its vectors move in the same step.
local refusal = stranger(ARGV[1])
if refusal then return refusal end
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
redis.call('HSET', KEYS[1], 'resource', ARGV[2], 'updated_at', whole(now()))
each_message(function(_, seq, value)
  for _, key in ipairs(vector_keys(seq, value)) do
    if redis.call('EXISTS', key) == 1 then redis.call('HSET', key, 'resource', ARGV[2]) end -- else somebody evicted it
  end
end)
keep()
return redis.call('HGETALL', KEYS[1])
