-- Writes imported values into the working memory that was imported with them, unless it has changed since or is kept already.
-- ARGV  user or '', version of the values and <revision>@<updated_at> as the caller read them, 1 if values of the archive are left
--       out because of their messages, then name and value of fields of the values
-- Reply 1 (written) or 0, what `renew_ttl` returns; WMOWNER, WMNOTHREAD, WMDELETED.
local refusal = values_refusal(ARGV[1])
if refusal then return refusal end
local memory = redis.call('HMGET', memory_key, 'revision', 'updated_at', 'kept')
local seen = (memory[1] or '0') .. '@' .. (memory[2] or '')
if memory[3] or seen ~= ARGV[3] or redis.call('HGET', values_key, 'version') ~= ARGV[2] then return {0, 0} end
if #KEYS > 3 then check_key_types() end
call_in_batches('HSET', values_key, 5, #ARGV)
redis.call('HSET', memory_key, 'kept', 1, 'stale', 2)
if ARGV[4] == '1' then drop_document() end
raise_version()
if #KEYS == 3 then return {1, 0} end
mark_thread('t')
return {1, renew_ttl()}
