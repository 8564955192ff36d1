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
if ARGV[2] ~= '' and ARGV[2] ~= revision then return reply(0) end

local document = ARGV[6]
if ARGV[5] == 'revert' then
  local entry = redis.call('XRANGE', revisions_key, ARGV[6] .. '-0', ARGV[6] .. '-0')[1]
  if not entry then return reply(-1) end
  for at = 1, #entry[2], 2 do
    if entry[2][at] == 'document' then document = entry[2][at + 1] end
  end
end
if document == (memory[2] or '') then return reply(1) end

revision = whole(revision + 1)
local at = whole(now())
local fields = {'document', document, 'revision', revision, 'updated_at', at, 'origin', ARGV[4]}
redis.call('HSET', memory_key, unpack(fields))
redis.call('XADD', revisions_key, 'MAXLEN', ARGV[3], revision .. '-0', unpack(fields))
if #KEYS > 3 then keep() end
return reply(1)
