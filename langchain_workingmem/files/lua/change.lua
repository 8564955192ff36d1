-- Writes a revision of one file.
-- ARGV  as changing.lua; bytes and files at most; base: the revision, or the note, that the caller has read, or '';
--       what: write, edit, insert, revert; its content, of revert the revision that has it; t or b; 1: only if there is none
-- Reply {'ok', note, 1: it was like this already}
--       {'conflict', revision or 0, content or ''}: another revision than base, so nothing was changed
--       {'exists'}, {'directory', path}, {'below', file above}, {'revision'}, {'bytes', bytes}, {'files', count}
local most_bytes, most_files, base, what, text, kind, must_be_new = unpack(ARGV, 6)
local present, number = redis.call('HGET', texts_key, path), file and file.revision or 0
if base ~= '' and tonumber(base) ~= number and base ~= (file and file.note) then
  return {'conflict', number, present or ''}
end
if must_be_new == '1' and is_live(file) then return {'exists'} end
if what == 'revert' then
  local is_present = tonumber(text) == number
  local old = file and (is_present and file.note or redis.call('HGET', notes_key, path .. '\0' .. text))
  text = old and parse(old).kind ~= 'd' and redis.call('HGET', texts_key, is_present and path or path .. '\0' .. text)
  if not text then return {'revision'} end
  kind = parse(old).kind
end
if is_live(file) and kind == file.kind and text == present then return done(file.note, 1) end
local is_new = not is_live(file)
local refused = is_new and in_the_way(path)
if refused then return refused end

local count, bytes = unpack(redis.call('HMGET', notes_key, 'count', 'bytes'))
local at, first_at, too_old, gone = now(), nil, {}, 0
if file then
  at, first_at = math.max(at, file.changed + 1), file.first_at
  too_old, gone = revisions_to(path, number - keep)
end
local more = #text - gone
count, bytes = (count or 0) + (is_new and 1 or 0), (bytes or 0) + more
if is_new and count > tonumber(most_files) then return {'files', count - 1} end
if more > 0 and bytes > tonumber(most_bytes) then return {'bytes', bytes} end
local note = new_note(number + 1, first_at or as_integer(at), at, #text, kind, what)
if file then redis.call('HSET', notes_key, path .. '\0' .. as_integer(number), file.note) end
if not is_new then redis.call('HSET', texts_key, path .. '\0' .. as_integer(number), present) end
redis.call('HSET', texts_key, path, text)
redis.call('HSET', notes_key, 'count', as_integer(count), 'bytes', as_integer(bytes))
if is_new then redis.call('HDEL', notes_key, path) else redis.call('ZREM', paths_key, path .. '\0' .. file.note) end
redis.call('ZADD', paths_key, 0, path .. '\0' .. note)
forget(too_old)
return done(note, 0)
