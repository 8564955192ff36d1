-- Writes working memory if it still is what the writer saw.
-- ARGV  resource or '' (of the thread), what the writer saw as <revision>@<updated_at> or '' (whatever it is), revisions to
--       keep, origin, 'write' and the document (empty: nothing is known), or 'revert' and the revision to bring back, 1 when
--       this was sent before and the reply was lost
-- Reply 1 (written, or equal already), 0 (another revision), -1 (the revision to bring back is not kept) or -2 (sent before, and
--       nobody knows any more whether it was written), then HGETALL of the memory, 1 when slices are left to be done;
--       WMOWNER, WMNOTHREAD, WMDELETED.
local refusal = memory_refusal(ARGV[1])
if refusal then return refusal end
local memory_key, revisions_key = unpack(KEYS, #KEYS - 1)
local memory = redis.call('HMGET', memory_key, 'revision', 'document', 'updated_at')
local revision = memory[1] or '0'
local unfinished = 0
local function reply(status)
  return {status, redis.call('HGETALL', memory_key), unfinished}
end
local function kept(revision)
  local entry = redis.call('XRANGE', revisions_key, revision .. '-0', revision .. '-0')[1]
  for at = 1, entry and #entry[2] or 0, 2 do
    if entry[2][at] == 'document' then return entry[2][at + 1] end
  end
end

local document = ARGV[6]
if ARGV[2] ~= '' and ARGV[2] ~= revision .. '@' .. (memory[3] or '') then
  -- a writer whose reply was lost writes again: it was there before, even if somebody else has come since
  local own = as_integer(string.match(ARGV[2], '^%d+') + 1)
  local then_written = own == revision and memory[2] or kept(own)
  if then_written == document then return reply(1) end
  return reply(ARGV[7] == '1' and not then_written and -2 or 0)
end
if ARGV[5] == 'revert' then
  document = kept(ARGV[6])
  if not document then return reply(-1) end
end
if document == (memory[2] or '') then return reply(1) end
if #KEYS > 3 then check_key_types() end

-- a server that evicts may have taken the memory and left its revisions
local newest = not memory[1] and redis.call('XREVRANGE', revisions_key, '+', '-', 'COUNT', 1)[1]
revision = as_integer((newest and string.match(newest[1], '^%d+') or revision) + 1)
local at = as_integer(math.max(now(), (memory[3] or 0) + 1)) -- rising, even when the clock jumps back
local fields = {'document', document, 'revision', revision, 'updated_at', at, 'origin', ARGV[4]}
-- first what may fail: a stream takes rising ids only
redis.call('XADD', revisions_key, 'MAXLEN', ARGV[3], revision .. '-0', unpack(fields))
redis.call('HSET', memory_key, unpack(fields))
if #KEYS > 3 then unfinished = renew_ttl() end
return reply(1)
