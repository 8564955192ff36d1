-- Writes working memory if it is unchanged since the writer read it.
-- KEYS  of the thread (ThreadKeys.all), or of the user: tombstone, memory, revisions
-- ARGV  user or '' (of the thread); the state that the writer read as <revision>@<updated_at>, or '' (any state);
--       number of revisions to keep; origin; 'write' and the document (empty: nothing is known), or 'revert' and the
--       revision to bring back; 1 when the call was sent before and its reply was lost
-- Reply 1 (written, or equal already), 0 (another revision), -1 (the revision to bring back is not kept) or -2
--       (sent before, and whether it was written cannot be told); then HGETALL of the memory; 1 when a sweep is unfinished.
--       Errors: WMOWNER, WMNOTHREAD, WMDELETED.
local refusal = memory_refusal(ARGV[1])
if refusal then return refusal end
local memory_key, revisions_key = unpack(KEYS, #KEYS > 3 and 10 or 2)
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
  -- a repeated call succeeds if its revision holds this document, even when newer revisions followed
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

-- eviction may have removed the memory and left its revisions
local newest = not memory[1] and redis.call('XREVRANGE', revisions_key, '+', '-', 'COUNT', 1)[1]
revision = as_integer((newest and string.match(newest[1], '^%d+') or revision) + 1)
local at = as_integer(math.max(now(), (memory[3] or 0) + 1)) -- increases even when the clock jumps back
local fields = {'document', document, 'revision', revision, 'updated_at', at, 'origin', ARGV[4]}
-- XADD first, because it may fail: the ids of a stream must increase
redis.call('XADD', revisions_key, 'MAXLEN', ARGV[3], revision .. '-0', unpack(fields))
redis.call('HSET', memory_key, unpack(fields))
if #KEYS > 3 then unfinished = renew_ttl() end
return reply(1)
