-- Marks messages as refused by a provider: they stay in the thread, and no history shows them.
-- ARGV  resource or '', ids
-- Reply number of messages marked, what `renew_ttl` returns; WMOWNER.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
check_key_types()
local marked, left = 0, 0
for place = 2, #ARGV do
  local id = ARGV[place]
  local seq = redis.call('ZSCORE', KEYS[2], id)
  if seq then
    local old = redis.call('HGET', KEYS[3], id)
    local at, model, size, chunks, said, state, rest = string.match(old, HEADER)
    if string.sub(said, -1) ~= '!' then
      remove_said(seq, said)
      redis.call('HSET', KEYS[3], id, header(at, model, size, chunks, said .. '!', state) .. string.sub(old, rest))
      marked = marked + 1
    end
  end
end
if marked > 0 then
  redis.call('HINCRBY', KEYS[1], 'refused', marked)
  left = renew_ttl()
end
return {marked, left}
