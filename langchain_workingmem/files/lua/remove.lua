-- Deletes one file, or all that an owner has: '/' with purge.
-- ARGV  token; path; who; ttl (ms), 0 or ''; revisions to keep; 1: forget the revisions, too, also of a file that was deleted before
-- Reply {'ok', number of files, 0: it was deleted before}, {'missing'}, {'damaged'}. Errors: WMDELETED.
local refused_by = redis.call('GET', KEYS[1])
if refused_by then return redis.error_reply('WMDELETED ' .. refused_by) end
local token, path, who, ttl, keep, purge = unpack(ARGV)
local before = reply_before(token)
if before then return before end
if path == '/' and purge == '1' then
  local files = redis.call('ZCARD', paths_key)
  local keys = redis.call('UNLINK', paths_key, texts_key, notes_key)
  return keys > 0 and done(token, '', {'ok', files}) or {'missing'}
end
if is_damaged() then return {'damaged'} end
local file = note_of(path)
local was_live = is_live(file)
if not was_live and not (file and purge == '1') then return {'missing'} end
local kept, bytes = path .. '\0' .. as_integer(file.revision), 0
if purge == '1' then
  local fields, size = revisions_to(path, file.revision - 1)
  forget(fields)
  redis.call('HDEL', notes_key, path)
  bytes = size + file.size
else
  local fields, size = revisions_to(path, file.revision - tonumber(keep))
  local note = new_note(file.revision + 1, file.first_at, math.max(now(), file.changed + 1), 0, 'd', 'delete', who)
  redis.call('HSET', texts_key, kept, redis.call('HGET', texts_key, path) or '')
  redis.call('HSET', notes_key, kept, file.note, path, note)
  forget(fields)
  bytes = size
end
if was_live then
  redis.call('ZREM', paths_key, path .. '\0' .. file.note)
  redis.call('HDEL', texts_key, path)
end
redis.call('HINCRBY', notes_key, 'bytes', as_integer(0 - bytes))
local count = redis.call('HINCRBY', notes_key, 'count', was_live and -1 or 0)
if count == 0 and redis.call('HLEN', notes_key) == 2 then redis.call('DEL', notes_key) end -- nothing is left
return done(token, ttl, {'ok', was_live and 1 or 0})
