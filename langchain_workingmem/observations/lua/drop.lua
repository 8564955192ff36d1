-- Deletes documents of recall in slices, before a manifest is written that does not show their lines. If it is not written,
-- `unindexed` sees to it that they are made again.
-- ARGV  resource or '', that manifest, numbers of lines
-- Reply numbers of lines that are left to do, those behind these lines included; WMOWNER, WMNOTHREAD.
local refusal = log_refusal(ARGV[1])
if refusal then return refusal end
if redis.call('HEXISTS', KEYS[12], 'documents') == 0 then return '' end
check_key_types()
redis.call('HSET', KEYS[12], 'unindexed', 1)
return write_ranges(drop_documents(parse_ranges(ARGV[3]), ARGV[2], MOST_DOCUMENTS))
