-- Writes values, and the document that follows from them, unless one of them has changed since the writer read it.
-- ARGV  user or '', the memory as <revision>@<updated_at> and the version of the values that the writer read, number of revisions
--       to keep, origin, 1 if the document is kept from now on, the document, `since`, number of fields of the values to
--       delete, these, then name and value of fields to set
-- Reply 1 (written, perhaps by an earlier call whose reply was lost) or 0 (changed meanwhile), what `renew_ttl` returns, HGETALL of
--       the memory; WMOWNER, WMNOTHREAD, WMDELETED.
local refusal = values_refusal(ARGV[1])
if refusal then return refusal end
local _, seen, version, keep, origin, is_kept, document, since, count = unpack(ARGV, 1, 9)
local memory = redis.call('HMGET', memory_key, 'revision', 'document', 'updated_at', 'stale')
local call = redis.sha1hex(table.concat(ARGV, '\0'))
local present, last = unpack(redis.call('HMGET', values_key, 'version', 'commit'))
if last == call then return {1, 0, redis.call('HGETALL', memory_key)} end
if seen ~= (memory[1] or '0') .. '@' .. (memory[3] or '') or version ~= (present or '') then
  return {0, 0, redis.call('HGETALL', memory_key)}
end
if #KEYS > 3 then check_key_types() end
if is_kept == '1' then
  if document ~= (memory[2] or '') or memory[4] == '1' then
    -- eviction may have removed the memory and left its revisions
    local newest = not memory[1] and redis.call('XREVRANGE', revisions_key, '+', '-', 'COUNT', 1)[1]
    local revision = as_integer((newest and string.match(newest[1], '^%d+') or memory[1] or 0) + 1)
    local at = as_integer(math.max(now(), (memory[3] or 0) + 1)) -- increases even when the clock jumps back
    local fields = {'document', document, 'revision', revision, 'updated_at', at, 'origin', origin}
    redis.call('XADD', revisions_key, 'MAXLEN', keep, revision .. '-0', unpack(fields))
    redis.call('HSET', memory_key, unpack(fields))
  end
  redis.call('HSET', memory_key, 'kept', 1, 'since', since)
  redis.call('HDEL', memory_key, 'stale')
end
local first = 10 + count
call_in_batches('HSET', values_key, first, #ARGV)
call_in_batches('HDEL', values_key, 10, first - 1)
redis.call('HSET', values_key, 'commit', call)
raise_version()
local unfinished = 0
if #KEYS > 3 then
  mark_thread('t')
  unfinished = renew_ttl()
end
return {1, unfinished, redis.call('HGETALL', memory_key)}
