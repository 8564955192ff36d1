-- Reads and changes the rows of a kind, and has the lease of its worker. Goes after rows.lua.
-- ARGV  1 {user, kind, what} and what that says. A reply is a JSON object, and bodies behind it
local kind, owner, created_at, edits = head.kind, unpack(redis.call('HMGET', KEYS[1], 'user', 'created_at', 'edits'))
local stamp = (created_at or '0') .. ' ' .. (edits or '0')
local expires_at, now_ms = redis.call('PEXPIRETIME', KEYS[1]), math.floor(now / 1000)
local reason = refusal(head.user, owner) or (not owner and head.what ~= 'show' and 'thread')
if reason then return {cjson.encode({refused = reason}), {}} end

-- Returns the rows that are shown, and bodies of those behind the `revision` that the caller knows.
-- {revision, stamp (of the thread), ahead (covered by rows that wait), failures, expires (ms), missing_at (ms: there is
--  no thread); since, ids, covered unless the revision is known}
local function show()
  local values = redis.call('HMGET', ROWS, 'revision:' .. kind, 'failures:' .. kind, 'covered:' .. kind .. '+',
    'shown:' .. kind, 'covered:' .. kind)
  local found = {revision = values[1] or '', failures = values[2] or '', ahead = cjson.decode(values[3] or '[]'),
    stamp = stamp, expires = expires_at > 0 and expires_at or nil, missing_at = not owner and now_ms or nil}
  if head.revision == found.revision then return {cjson.encode(found), {}} end
  local epoch, since = string.match(head.revision, '^(%d+)%.(%d+)$')
  found.since = epoch and epoch == string.match(found.revision, '^%d+') and tonumber(since) or 0
  local ids, fields = difference(cjson.decode(values[4] or '[]'), {0, found.since}), {}
  found.ids, found.covered = ids, cjson.decode(values[5] or '[]')
  for at = 1, #ids, 2 do
    for id = ids[at], ids[at + 1] do fields[#fields + 1] = 'b:' .. whole(id) end
  end
  return {cjson.encode(found), values_of(ROWS, fields)}
end

-- Gives the lease to `holder` for `ms`, unless another than `token` has it; `force` takes it although there is a pause.
-- `failures`: what is noted of failures until rows are committed.
-- {wait, pause}: ms until it is free, 0 if that is done; whether all pause
local function lease()
  local holder, till = string.match(get('lease:' .. kind) or '', '^(%S+) (%d+)$')
  local is_pause = holder == 'pause'
  if holder and holder ~= head.token and tonumber(till) > now_ms and not (head.force and is_pause) then
    return {wait = till - now_ms, pause = is_pause}
  end
  if head.ms > 0 then set('lease:' .. kind, head.holder .. ' ' .. whole(now_ms + head.ms)) end
  if head.ms == 0 then redis.call('HDEL', ROWS, 'lease:' .. kind) end
  if head.failures then set('failures:' .. kind, head.failures) end
  return {wait = 0}
end

-- Replaces the rows, unless messages were deleted since `stamp`, or rows changed since `version`: {stale} says which.
-- `rows`: the heads of all; `bodies` of new ones, by id; `dropped`: ids of others; `next`: the last id
local function commit()
  if stamp ~= head.stamp then return {stale = 'messages'} end
  if (get('version') or '0') ~= head.version then return {stale = 'rows'} end
  set('next', whole(head.next)) -- first, as a full server refuses it
  for _, id in ipairs(head.dropped) do redis.call('HDEL', ROWS, 'b:' .. whole(id)) end
  for id, body in pairs(head.bodies) do set('b:' .. id, body) end
  write_rows(head.rows, {[kind] = true})
  redis.call('HDEL', ROWS, 'failures:' .. kind)
  return {}
end

if head.what == 'show' then return show() end
local done = (head.what == 'commit' and commit or lease)()
if expires_at > 0 then redis.call('PEXPIREAT', ROWS, whole(expires_at)) end
return {cjson.encode(done), {}}
