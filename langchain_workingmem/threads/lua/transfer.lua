-- ARGV  the present resource, the new resource, most vectors that move at once
-- Reply HGETALL of the thread, empty when there is none; WMOWNER. Slices are left to be done while it has `renew_vectors_from`: from this
-- step on the thread is the new owner's, and nobody else's search shows anything of it.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
check_key_types()
redis.call('HSET', KEYS[1], 'resource', ARGV[2], 'updated_at', as_integer(now()), 'renew_vectors_from', 0)
renew_vectors(new_budget(tonumber(ARGV[3])))
renew_ttl()
return redis.call('HGETALL', KEYS[1])
