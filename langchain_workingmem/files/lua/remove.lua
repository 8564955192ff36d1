-- Deletes one file, or all that an owner has: '/' with purge.
-- ARGV  as changing.lua; 1: forget the revisions, too, also of a file that was deleted before
-- Reply {'ok', number of files, 0: it was deleted before}, {'missing'}
local purge = ARGV[6] == '1'
if path == '/' then
  local files = redis.call('ZCARD', paths_key)
  return redis.call('UNLINK', paths_key, texts_key, notes_key) > 0 and done(files) or {'missing'}
end
local was_live = is_live(file)
if not was_live and not (file and purge) then return {'missing'} end
local fields, bytes = revisions_to(path, file.revision - (purge and 1 or keep))
if purge then
  redis.call('HDEL', notes_key, path)
  bytes = bytes + file.size
else
  local kept, at = path .. '\0' .. as_integer(file.revision), math.max(now(), file.changed + 1)
  redis.call('HSET', texts_key, kept, redis.call('HGET', texts_key, path))
  redis.call('HSET', notes_key, kept, file.note, path, new_note(file.revision + 1, file.first_at, at, 0, 'd', 'delete'))
end
forget(fields)
if was_live then
  redis.call('ZREM', paths_key, path .. '\0' .. file.note)
  redis.call('HDEL', texts_key, path)
end
redis.call('HINCRBY', notes_key, 'bytes', as_integer(0 - bytes))
local count = redis.call('HINCRBY', notes_key, 'count', was_live and -1 or 0)
if count == 0 and redis.call('HLEN', notes_key) == 2 then redis.call('DEL', notes_key) end -- nothing is left
return done(was_live and 1 or 0)
