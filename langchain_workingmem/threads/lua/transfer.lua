-- Changes the owner of a thread. Recall of other owners shows nothing of it from then on; vectors change in slices.
-- ARGV  present owner, new owner, most vectors to change at once
-- Reply HGETALL of the thread, empty if it does not exist; WMOWNER, WMCOVERED, WMKEPT. The field `renew_vectors_from` means that slices are left.
local refusal = write_refusal(ARGV[1])
if refusal then return refusal end
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
check_key_types()
refusal = hooks.keeps and hooks.keeps('transfer')
if refusal then return refusal end
redis.call('HSET', KEYS[1], 'user', ARGV[2], 'updated_at', as_integer(now()), 'renew_vectors_from', 0)
renew_vectors(new_budget(tonumber(ARGV[3])))
renew_ttl()
return redis.call('HGETALL', KEYS[1])
