-- Writes a working memory and its revision, unless it has changed since the writer read it. common.lua goes before it.
-- KEYS  of the thread; or of a user: 1 tombstone  2 memory (HASH)  3 revisions (STREAM)
-- ARGV  1 {user, ttl, expected, keep, origin, document, revert, is_repeated, fields, revisions, beside, cut}
--   expected      the state that the writer has read, <revision>@<updated_at>; without it any
--   keep          number of revisions
--   document      the next one (empty: nothing is known); with `revert` that of this revision
--   is_repeated   the call was sent before, and its reply was lost
--   fields        of an exported memory, and its revisions ({number, fields}): they are written if there is none
--   beside        a field and its value that are written, too: what the document was made of
--   cut           only this revision stays: older ones may hold what has gone
-- Reply {status}, then HGETALL of the memory. status is 'written' (or equal already), 'changed' (another revision),
--       'missing' (it is not kept), 'unknown' (whether the first call has written cannot be told), 'deleted' (the user)
local is_of_thread = #KEYS > 3
local memory_key, revisions_key = unpack(KEYS, #KEYS - 1)
if is_of_thread then
  local owner = redis.call('HGET', KEYS[1], 'user')
  local no = refusal(head.user, owner) or not owner and 'thread' or nil
  if no then return {cjson.encode({refused = no})} end
elseif redis.call('EXISTS', KEYS[1]) == 1 then
  return {cjson.encode({status = 'deleted'}), {}}
end
local memory = redis.call('HMGET', memory_key, 'revision', 'document', 'updated_at')
local revision, document, clock = memory[1] or '0', head.document, redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local function reply(status)
  return {cjson.encode({status = status}), redis.call('HGETALL', memory_key)}
end

-- Returns the document of a revision.
local function kept(number)
  local entry = redis.call('XRANGE', revisions_key, number .. '-0', number .. '-0')[1]
  for at = 1, entry and #entry[2] or 0, 2 do
    if entry[2][at] == 'document' then return entry[2][at + 1] end
  end
end

-- Writes the memory, and lets the thread live as after any other write.
local function finish(fields)
  redis.call('HSET', memory_key, unpack(fields))
  local ttl = is_of_thread and (head.ttl or tonumber(redis.call('HGET', KEYS[1], 'ttl')))
  expire(now, ttl)
  return reply('written')
end

if head.fields then
  if memory[1] then return reply('changed') end
  redis.call('UNLINK', revisions_key) -- left by a memory that Redis has evicted
  for _, one in ipairs(head.revisions) do redis.call('XADD', revisions_key, one[1] .. '-0', unpack(one[2])) end
  return finish(head.fields)
end
if head.expected and head.expected ~= revision .. '@' .. (memory[3] or '') then
  -- a repeated call succeeds if its revision holds this document, even when newer ones followed
  local own = whole(string.match(head.expected, '^%d+') + 1)
  local then_written = own == revision and memory[2] or kept(own)
  local otherwise = head.is_repeated and not then_written and 'unknown' or 'changed'
  return reply(then_written == document and 'written' or otherwise)
end
if head.revert then
  document = kept(head.revert)
  if not document then return reply('missing') end
end
if document == (memory[2] or '') then
  if head.beside and memory[1] then redis.call('HSET', memory_key, unpack(head.beside)) end
  if head.cut then redis.call('XTRIM', revisions_key, 'MAXLEN', 1) end
  return reply('written')
end
-- eviction may have left the revisions
local newest = not memory[1] and redis.call('XREVRANGE', revisions_key, '+', '-', 'COUNT', 1)[1]
revision = whole((newest and string.match(newest[1], '^%d+') or revision) + 1)
local at = whole(math.max(now, (memory[3] or 0) + 1))
local fields = {'document', document, 'revision', revision, 'updated_at', at, 'origin', head.origin}
-- first, as it may fail
redis.call('XADD', revisions_key, 'MAXLEN', head.cut and 1 or head.keep, revision .. '-0', unpack(fields))
for _, value in ipairs(head.beside or {}) do fields[#fields + 1] = value end
return finish(fields)
