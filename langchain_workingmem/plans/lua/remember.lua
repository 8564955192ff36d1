-- Writes working memory if it still is at the revision that the writer saw.
-- ARGV  resource or '' (of the thread), expected revision or '' (any), revisions to keep, origin,
--       'write' and the document (empty: nothing is known), or 'revert' and the revision to bring back
-- Reply 1 (written, or equal already), 0 (another revision) or -1 (the revision to bring back is not kept),
--       then HGETALL of the memory; WMOWNER, WMNOTHREAD, WMDELETED.
local refusal = no_memory(ARGV[1])
if refusal then return refusal end
local memory_key, revisions_key = unpack(KEYS, #KEYS - 1)
local memory = redis.call('HMGET', memory_key, 'revision', 'document')
local revision = memory[1] or '0'
local function reply(status)
  return {status, redis.call('HGETALL', memory_key)}
end
local function kept(revision)
  local entry = redis.call('XRANGE', revisions_key, revision .. '-0', revision .. '-0')[1]
  for at = 1, entry and #entry[2] or 0, 2 do
    if entry[2][at] == 'document' then return entry[2][at + 1] end
  end
end

local document = ARGV[6]
if ARGV[2] ~= '' and ARGV[2] ~= revision then
  -- a writer whose reply was lost writes again: it was there before, even if somebody else has come since
  return reply(kept(whole(ARGV[2] + 1)) == document and 1 or 0)
end
if ARGV[5] == 'revert' then
  document = kept(ARGV[6])
  if not document then return reply(-1) end
end
if document == (memory[2] or '') then return reply(1) end

revision = whole(revision + 1)
local at = whole(now())
local fields = {'document', document, 'revision', revision, 'updated_at', at, 'origin', ARGV[4]}
-- first what may fail: a stream takes rising ids only
redis.call('XADD', revisions_key, 'MAXLEN', ARGV[3], revision .. '-0', unpack(fields))
redis.call('HSET', memory_key, unpack(fields))
if #KEYS > 3 then keep() end
return reply(1)
