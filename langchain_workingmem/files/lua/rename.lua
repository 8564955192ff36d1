-- Renames a file with its revisions, or a slice of a directory. What is at the new path already, of a rename that did not come to
-- its end, is continued: the field "<old path>\0>" of the notes names it.
-- ARGV  token; old path; new path; who; ttl (ms) or ''; revisions to keep; files at most
-- Reply {'ok', number of files, 1 if some are left}, {'missing'}, {'exists'}, {'directory', path}, {'below', file above}.
--       Errors: WMDELETED.
if redis.call('EXISTS', KEYS[1]) == 1 then return redis.error_reply('WMDELETED the resource is being deleted') end
local token, old, new, who, ttl, keep, most = unpack(ARGV)
local before = reply_before(token)
if before then return before end
keep, most = tonumber(keep), tonumber(most)
local began, moved = os.clock(), 0
local is_found = redis.call('HGET', notes_key, 'recall')

-- Gives a file, its revisions and those of a deleted file of the new path one row of numbers.
local function move(from, to, file)
  local there = note_of(to)
  local shift = there and there.revision or 0
  if there then
    redis.call('HSET', notes_key, to .. '\0' .. as_integer(shift), there.note)
    redis.call('HDEL', notes_key, to)
  end
  for revision = file.revision - 1, 1, -1 do
    local key = from .. '\0' .. as_integer(revision)
    local note, text = redis.call('HGET', notes_key, key), redis.call('HGET', texts_key, key)
    if not note then break end
    local kept = to .. '\0' .. as_integer(revision + shift)
    redis.call('HSET', notes_key, kept, as_integer(revision + shift) .. string.match(note, '^%d+(.*)$'))
    if text then redis.call('HSET', texts_key, kept, text) end
    redis.call('HDEL', notes_key, key)
    redis.call('HDEL', texts_key, key)
  end
  local text = redis.call('HGET', texts_key, from) or ''
  redis.call('HDEL', texts_key, from)
  redis.call('ZREM', paths_key, from .. '\0' .. file.note)
  local last = as_integer(file.revision + shift)
  local note = new_note(file.revision + shift + 1, file.first_at, math.max(now(), file.changed + 1), file.size, file.kind, 'rename', who)
  redis.call('HSET', notes_key, to .. '\0' .. last, last .. string.match(file.note, '^%d+(.*)$'))
  redis.call('HSET', texts_key, to .. '\0' .. last, text, to, text)
  local bytes = file.size
  for revision = file.revision + shift - keep, 1, -1 do
    local key = to .. '\0' .. as_integer(revision)
    local forgotten = redis.call('HGET', notes_key, key)
    if not forgotten then break end
    redis.call('HDEL', notes_key, key)
    redis.call('HDEL', texts_key, key)
    bytes = bytes - parse(forgotten).size
  end
  redis.call('HINCRBY', notes_key, 'bytes', as_integer(bytes))
  redis.call('ZADD', paths_key, 0, to .. '\0' .. note)
  if is_found then
    forget_found(from, false)
    forget_found(to, file.kind == 't')
  end
  moved = moved + 1
end

local file = note_of(old)
local moving = old .. '\0>'
local continues = redis.call('HGET', notes_key, moving) == new
if not is_live(file) and not has_below(old) then
  redis.call('HDEL', notes_key, moving)
  return continues and done(token, ttl, {'ok', 0, 0}) or {'missing'}
end
if not continues then
  if is_live(note_of(new)) or has_below(new) then return {'exists'} end
  local refused = in_the_way(new)
  if refused then return refused end
end
if is_live(file) then
  move(old, new, file)
else
  redis.call('HSET', notes_key, moving, new)
  for _, member in ipairs(redis.call('ZRANGE', paths_key, '[' .. old .. '/', '(' .. old .. '0', 'BYLEX', 'LIMIT', 0, most)) do
    local ends = string.find(member, '\0', 1, true)
    local path = string.sub(member, 1, ends - 1)
    local to = new .. string.sub(path, #old + 1)
    local there = note_of(to)
    if is_live(there) then return {'exists'} end -- another program has written it meanwhile
    move(path, to, parse(string.sub(member, ends + 1)))
    if os.clock() - began > 0.01 then break end
  end
end
local left = has_below(old) and 1 or 0
if left == 0 then redis.call('HDEL', notes_key, moving) end
return done(token, ttl, {'ok', moved, left})
