-- Renames a file with its revisions, or a slice of a directory. A rename of a directory that did not come to its end is continued:
-- the field "<old path>\0>" of the notes names its new path.
-- ARGV  token; old path; new path; who; ttl (ms), 0 or ''; revisions to keep; bytes at most; files at most
-- Reply {'ok', number of files, 1 if some are left}, {'missing'}, {'exists', path}, {'directory', path}, {'below', file above},
--       {'bytes', bytes}. Errors: WMDELETED.
local refused_by = redis.call('GET', KEYS[1])
if refused_by then return redis.error_reply('WMDELETED ' .. refused_by) end
local token, old, new, who, ttl, keep, most_bytes, most = unpack(ARGV)
local before = reply_before(token)
if before then return before end
check_types()
keep, most_bytes, most = tonumber(keep), tonumber(most_bytes), tonumber(most)
local began, moved = os.clock(), 0

-- Moves a file; returns why it may not, if so. Its revisions follow those of a deleted file of the new path, without gaps. The old
-- path keeps a note as of a deleted file: a file that is made there later does not have revisions that readers know already.
local function move(from, to, file)
  local there, text = note_of(to), redis.call('HGET', texts_key, from) or ''
  if is_live(there) then return {'exists', to} end
  local too_old, gone = revisions_to(from, file.revision - keep)
  local fields = revisions_to(from, file.revision - 1)
  local kept, older, more_gone = #fields - #too_old, {}, 0
  local number = there and there.revision or file.revision - 1 - kept
  local last = number + kept + 1
  if there then older, more_gone = revisions_to(to, math.min(last - keep, number - 1)) end
  local more = file.size - gone - more_gone
  local bytes = redis.call('HGET', notes_key, 'bytes') + more
  if more > 0 and bytes > most_bytes then return {'bytes', bytes} end

  local at = math.max(now(), file.changed + 1, there and there.changed + 1 or 0)
  redis.call('HSET', notes_key, from, new_note(file.revision + 1, file.first_at, at, 0, 'd', 'rename', who), 'bytes', as_integer(bytes))
  if there then
    if last - keep < number then redis.call('HSET', notes_key, to .. '\0' .. as_integer(number), there.note) end
    redis.call('HDEL', notes_key, to)
  end
  for at = kept, 1, -1 do
    number = number + 1
    local field, note = to .. '\0' .. as_integer(number), redis.call('HGET', notes_key, fields[at])
    local old_text = redis.call('HGET', texts_key, fields[at])
    redis.call('HSET', notes_key, field, as_integer(number) .. string.match(note, '^%d+(.*)$'))
    if old_text then redis.call('HSET', texts_key, field, old_text) end
  end
  forget(fields)
  forget(older)
  local field = to .. '\0' .. as_integer(last)
  redis.call('HSET', notes_key, field, as_integer(last) .. string.match(file.note, '^%d+(.*)$'))
  redis.call('HSET', texts_key, field, text, to, text)
  redis.call('HDEL', texts_key, from)
  redis.call('ZREM', paths_key, from .. '\0' .. file.note)
  redis.call('ZADD', paths_key, 0, to .. '\0' .. new_note(last + 1, file.first_at, at, file.size, file.kind, 'rename', who))
  moved = moved + 1
end

local file, moving = note_of(old), old .. '\0>'
local continues = not is_live(file) and redis.call('HGET', notes_key, moving) == new
if not is_live(file) and not has_below(old) then
  redis.call('HDEL', notes_key, moving)
  return continues and done(token, ttl, {'ok', 0, 0}) or {'missing'}
end
if not continues then
  if is_live(note_of(new)) or has_below(new) then return {'exists', new} end
  local refused = in_the_way(new)
  if refused then return refused end
end
if is_live(file) then
  local refused = move(old, new, file)
  if refused then return refused end
else
  for _, member in ipairs(redis.call('ZRANGE', paths_key, '[' .. old .. '/', '(' .. old .. '0', 'BYLEX', 'LIMIT', 0, most)) do
    local ends = string.find(member, '\0', 1, true)
    local path = string.sub(member, 1, ends - 1)
    local to = new .. string.sub(path, #old + 1)
    -- others may have written there since the first slice
    local refused = continues and in_the_way(to) or move(path, to, parse(string.sub(member, ends + 1)))
    if refused and moved == 0 then return refused end
    if refused or os.clock() - began > 0.008 then break end
  end
end
local left = has_below(old) and 1 or 0
if left == 1 then redis.call('HSET', notes_key, moving, new) else redis.call('HDEL', notes_key, moving) end
return done(token, ttl, {'ok', moved, left})
