-- Marks messages as refused by a provider: they stay in the thread, and no history shows them.
-- ARGV  user or '', ids
-- Reply number of messages marked, what renew_ttl returns; WMOWNER, WMCOVERED.
local refusal = write_refusal(ARGV[1])
if refusal then return refusal end
check_key_types()
local refused, left = 0, 0
for at = 2, #ARGV do
  local id = ARGV[at]
  local seq = redis.call('ZSCORE', KEYS[2], id)
  local old = seq and redis.call('HGET', KEYS[3], id)
  local stored_at, model, size, chunks, said, state, rest = string.match(old or '', HEADER)
  if said and string.sub(said, -1) ~= '!' then
    remove_said(seq, said)
    redis.call('HSET', KEYS[3], id, header(stored_at, model, size, chunks, said .. '!', state) .. string.sub(old, rest))
    refused = refused + 1
  end
end
if refused > 0 then
  redis.call('HINCRBY', KEYS[1], 'refused', refused)
  tell_change({})
  left = renew_ttl()
end
return {refused, left}
