-- Writes an exported working memory with its revisions, unless there is one.
-- ARGV  user, number of fields and values of the memory, those, then for each revision its number, number of fields and
--       values, those
-- Reply 1 (written) or 0 (there is one), what `renew_ttl` returns; WMOWNER, WMNOTHREAD, WMDELETED.
local refusal = memory_refusal(ARGV[1])
if refusal then return refusal end
local memory_key, revisions_key = unpack(KEYS, #KEYS > 3 and 10 or 2)
if redis.call('EXISTS', memory_key) == 1 then return {0, 0} end
local width = tonumber(ARGV[2])
redis.call('XLEN', revisions_key)
if #KEYS > 3 then check_key_types() end
redis.call('UNLINK', revisions_key) -- left by a memory that Redis evicted
local at = 3 + width
while at < #ARGV do
  local last = at + 1 + ARGV[at + 1]
  redis.call('XADD', revisions_key, ARGV[at] .. '-0', unpack(ARGV, at + 2, last))
  at = last + 1
end
redis.call('HSET', memory_key, unpack(ARGV, 3, 2 + width))
return {1, #KEYS > 3 and renew_ttl() or 0}
