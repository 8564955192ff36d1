-- Reads a working memory with its values.
-- ARGV  user or '', 1 if a commit follows that may find neither working memory nor values: then the values get a version, so
--       that a deletion meanwhile shows
-- Reply HGETALL of the memory, of the values, microseconds since the epoch; WMOWNER, and with 1 WMNOTHREAD, WMDELETED
local refusal
if ARGV[2] == '1' then refusal = values_refusal(ARGV[1]) elseif #KEYS > 3 then refusal = wrong_owner(ARGV[1]) end
if refusal then return refusal end
if ARGV[2] == '1' and redis.call('HEXISTS', values_key, 'version') == 0 then
  redis.call('HSET', values_key, 'began', raise_version()) -- whoever finds another one knows that all was deleted meanwhile
  if #KEYS > 3 then renew_ttl() end
end
return {redis.call('HGETALL', memory_key), redis.call('HGETALL', values_key), as_integer(now())}
