-- Reads the rows of a kind that are shown; of them only those that the caller does not know.
-- ARGV  1 {user, kind, revision (that the caller knows), work (adds what a worker needs)}
-- Reply {revision, expires (ms), missing_at (ms: there is no thread); since, ids, covered unless the revision is known; created_at, edits, ahead (covered by rows that wait), failures, failed}, bodies
local kind, owner, known, bodies, last = head.kind, redis.call('HGET', KEYS[1], 'user'), head.revision or '', {}, 0
local no = refusal(head.user, owner)
if no then return {cjson.encode({refused = no}), {}} end
local shown, covered, epoch = unpack(redis.call('HMGET', KEYS[9], 'shown:' .. kind, 'covered:' .. kind, 'epoch:' .. kind))
local found = {revision = (epoch or '') .. '.' .. (string.match(shown or '', '(%d+)$') or 0)}
local expiry = redis.call('PEXPIRETIME', KEYS[1])
if expiry > 0 then found.expires = expiry end
if not owner then -- it has expired, or was deleted
  local time = redis.call('TIME')
  found.missing_at = time[1] * 1000 + math.floor(time[2] / 1000)
end
if head.work then
  local about = redis.call('HMGET', KEYS[1], 'created_at', 'edits')
  found.created_at, found.edits, found.ahead = about[1] or '', about[2] or '0', {}
  local failed = redis.call('HMGET', KEYS[9], 'failures:' .. kind, 'failed:' .. kind)
  found.failures, found.failed = tonumber(failed[1] or 0), failed[2] or ''
  for id in string.gmatch(redis.call('HGET', KEYS[9], 'ahead:' .. kind) or '', '%d+') do
    local row = cjson.decode(redis.call('HGET', KEYS[9], 'r:' .. id) or '{"covers":"","cites":"","number":0}')
    local number = 0 -- of cited messages that are current
    for low, high in string.gmatch(row.cites, '(%d+)-(%d+)') do number = number + redis.call('ZCOUNT', KEYS[2], low, high) end
    if number == row.number then found.ahead[#found.ahead + 1] = row.covers end
  end
  found.ahead = table.concat(found.ahead, ',')
end
if known ~= found.revision then
  local same = (epoch or '') .. '.'
  if string.sub(known, 1, #same) == same then last = tonumber(string.match(known, '%d+$')) end
  local fields, ids = {}, {}
  for low, high in string.gmatch(shown or '', '(%d+)-(%d+)') do
    for id = math.max(low, last + 1), high do
      ids[#ids + 1], fields[#fields + 1] = id, 'b:' .. whole(id)
    end
  end
  found.since, found.ids, found.covered = last, #ids > 0 and ids or nil, covered or ''
  for first = 1, #fields, 1000 do
    for _, body in ipairs(redis.call('HMGET', KEYS[9], unpack(fields, first, math.min(first + 999, #fields)))) do
      bodies[#bodies + 1] = body or ''
    end
  end
end
return {cjson.encode(found), bodies}
