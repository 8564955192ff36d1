-- Writes a working memory and its revision, unless it has changed since the writer read it. common.lua goes before it.
-- KEYS  of the thread; or of a user: 1 tombstone  2 memory (HASH)  3 revisions (STREAM)
-- ARGV  1 {user, ttl, expected, call, keep, origin, document, fields, revisions, beside, cut}
--   expected      the version that was read, <revision>@<updated_at>; `call` an id by which a writer knows its write
--   keep          number of revisions; `document` the next one (empty: nothing is known)
--   fields        of an exported memory, and its revisions ({number, fields}): they are written if there is none
--   beside        a field and its value that are written, too: what the document was made of
--   cut           only this revision stays: older ones may hold what has gone
-- Reply {status}, then HGETALL of the memory: 'written' (perhaps before: its reply was lost, or the text was equal),
--       'changed' (by others; nothing is done), 'deleted' (the user is)
local is_of_thread = #KEYS > 3
local memory_key, revisions_key = unpack(KEYS, #KEYS - 1)
if is_of_thread then
  local owner = redis.call('HGET', KEYS[1], 'user')
  local reason = refusal(head.user, owner) or not owner and 'thread' or nil
  if reason then return {cjson.encode({refused = reason})} end
elseif redis.call('EXISTS', KEYS[1]) == 1 then
  return {cjson.encode({status = 'deleted'}), {}}
end
local revision, document, updated_at = unpack(redis.call('HMGET', memory_key, 'revision', 'document', 'updated_at'))
local function reply(status, renew)
  return {cjson.encode({status = status, renew = renew}), redis.call('HGETALL', memory_key)}
end

-- Writes the memory, and lets the thread live as after any other write.
local function finish(fields)
  redis.call('HSET', memory_key, unpack(fields))
  local ttl = is_of_thread and (head.ttl or tonumber(redis.call('HGET', KEYS[1], 'ttl')))
  return reply('written', expire(ttl))
end

if head.fields then
  if revision then return reply('changed') end
  redis.call('UNLINK', revisions_key) -- left by a memory that Redis has evicted
  for _, one in ipairs(head.revisions) do redis.call('XADD', revisions_key, one[1] .. '-0', unpack(one[2])) end
  return finish(head.fields)
end
if head.expected ~= (revision or '0') .. '@' .. (updated_at or '') then
  return reply(head.call and redis.call('HGET', memory_key, 'call') == head.call and 'written' or 'changed')
end
if head.document == (document or '') then
  if head.beside and revision then redis.call('HSET', memory_key, unpack(head.beside)) end
  if head.cut then redis.call('XTRIM', revisions_key, 'MAXLEN', 1) end
  return reply('written')
end
local newest = not revision and redis.call('XREVRANGE', revisions_key, '+', '-', 'COUNT', 1)[1] -- left by an eviction
local number = whole((newest and string.match(newest[1], '^%d+') or revision or 0) + 1)
local at = whole(math.max(now, (updated_at or 0) + 1))
local fields = {'document', head.document, 'revision', number, 'updated_at', at, 'origin', head.origin}
-- first, as it may fail
redis.call('XADD', revisions_key, 'MAXLEN', head.cut and 1 or head.keep, number .. '-0', unpack(fields))
add(fields, {'call', head.call or '', unpack(head.beside or {})})
return finish(fields)
