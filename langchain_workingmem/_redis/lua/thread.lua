-- Creates a thread, or changes one.
-- ARGV  1 {user, what, set, unset, ttl, to, facts, title, refused, after, most, is_own, until}
--   what   'create' (with the fields `set`; {refused = 'exists'}, unless nobody else can have made it: `is_own`),
--          'update' (sets the fields `set`, and deletes those of `unset`),
--          'title' (unless it has one, though the version rises; made from the message of these `facts`),
--          'vectors' (notes only `until`, in ms, which its vectors live),
--          'refuse' (the ids `refused`, which no model is shown any more),
--          'transfer' (to the owner `to`; vectors of `most` messages from the seq `after` on)
-- Reply {next: the seq where a transfer goes on, has_rows, renew}, then HGETALL of the thread, nothing if there is none
local reason = refusal(head.user, owner)
if head.what == 'create' and reason ~= 'damaged' then reason = owner and not head.is_own and 'exists' or nil end
if reason then return {cjson.encode({refused = reason})} end
if not owner and head.what ~= 'create' then return {'{}', {}} end
if head.what == 'vectors' then return {'{}', {redis.call('HSET', KEYS[1], 'vectors_until', head['until'])}} end
local at, next_seq = whole(now), nil
local fields = head.what ~= 'title' and {'updated_at', at} or {}
if head.what == 'create' then
  add(fields, {'user', head.user, 'layout', LAYOUT, 'created_at', at, 'edits', at, 'next_seq', whole(first_seq())})
  if head.ttl then add(fields, {'vectors_until', expiry(2 * head.ttl)}) end
elseif head.what == 'title' then
  local is_there = redis.call('ZSCORE', KEYS[2], head.facts)
  if is_there and redis.call('HSETNX', KEYS[1], 'title', head.title) == 1 then
    add(fields, {'title_source', string.match(head.facts, '^%d+')})
  end
elseif head.what == 'transfer' then
  add(fields, {'user', head.to})
  local some = redis.call('ZRANGE', KEYS[2], head.after, '+inf', 'BYSCORE', 'LIMIT', 0, head.most)
  for _, facts in ipairs(some) do
    for _, key in ipairs(vector_keys(facts)) do
      if redis.call('EXISTS', key) == 1 then redis.call('HSET', key, 'user', head.to) end
    end
  end
  if #some == head.most then next_seq = string.match(some[#some], '^%d+') + 1 end
end
for _, id in ipairs(head.refused or {}) do
  local message = message_at(locate(redis.call('HGET', KEYS[5], id))[1] or -1)
  if message and message.is_current and string.sub(message.digest, -1) ~= '!' then
    delete_vectors(message.facts) -- nobody searches for it
    message.digest, message.vectors = message.digest .. '!', ''
    write_facts(message, true)
    set_prefix(message.seq, '!')
    forget_title(message.seq)
  end
end
for name, value in pairs(head.set or {}) do add(fields, {name, value}) end
local renew = finish(fields)
if head.unset and #head.unset > 0 then redis.call('HDEL', KEYS[1], unpack(head.unset)) end
local row, labels = redis.call('HGETALL', KEYS[1]), {} -- a tag for each pair of the metadata, to filter on
for at = 1, #row, 2 do
  local key = string.match(row[at], '^metadata:(.*)$')
  if key then labels[#labels + 1] = redis.sha1hex(key .. '=' .. row[at + 1]) end
end
if head.set then redis.call('HSET', KEYS[1], 'labels', table.concat(labels, ',')) end
local has_rows = redis.call('EXISTS', KEYS[9]) == 1
return {cjson.encode({next = next_seq, has_rows = has_rows, renew = renew}), row}
