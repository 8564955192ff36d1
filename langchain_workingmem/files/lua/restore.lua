-- Puts a file of an archive, or of another owner, where none is; in further calls the rest of its revisions.
-- ARGV  path; note; ttl (ms) or ''; older revisions, bytes and files at most, each '' for all; its content, '' if it is
--       deleted; note and content of older revisions, the newest first, without gaps
-- Reply {'ok'}; {'same'}: it is there, and has the revisions now; {'equal'}: another one with the same content is there;
--       {'known'}: it is an older revision of what is there; {'taken', path in the way}; {'bytes', bytes};
--       {'files', count}; {'damaged'}: Redis has evicted a part. Errors: WMDELETED.
local refused_by = redis.call('GET', KEYS[1])
if refused_by then return redis.error_reply('WMDELETED ' .. refused_by) end
if is_damaged() then return {'damaged'} end
local path, note, ttl, keep, most_bytes, most_files, text = unpack(ARGV, 1, 7)
local file, there = parse(note), note_of(path)
local is_new = not there
if there and there.note ~= note then
  local is_equal = there.kind == file.kind and is_live(there) and redis.call('HGET', texts_key, path) == text
  if is_equal then return {'equal'} end
  if redis.call('HGET', notes_key, path .. '\0' .. as_integer(file.revision)) == note then return {'known'} end
  return {'taken', path}
end
local notes, texts, more, count = {}, {}, 0, 0
if is_new and is_live(file) then
  local refused = in_the_way(path)
  if refused then return {'taken', refused[2]} end
  texts[1], texts[2], more, count = path, text, file.size, 1
elseif is_new then
  notes[1], notes[2] = path, note
end
for at = 8, #ARGV, 2 do
  local older = parse(ARGV[at])
  local field = path .. '\0' .. as_integer(older.revision)
  if keep ~= '' and older.revision < file.revision - keep then break end
  if redis.call('HEXISTS', notes_key, field) == 0 then
    notes[#notes + 1], notes[#notes + 2] = field, ARGV[at]
    if is_live(older) then texts[#texts + 1], texts[#texts + 2] = field, ARGV[at + 1] end
    more = more + older.size
  end
end
local files, bytes = unpack(redis.call('HMGET', notes_key, 'count', 'bytes'))
files, bytes = (files or 0) + count, (bytes or 0) + more
if most_files ~= '' and count > 0 and files > tonumber(most_files) then return {'files', files - 1} end
if most_bytes ~= '' and more > 0 and bytes > tonumber(most_bytes) then return {'bytes', bytes} end
for at = 1, #texts, 2 do redis.call('HSET', texts_key, texts[at], texts[at + 1]) end
for at = 1, #notes, 2 do redis.call('HSET', notes_key, notes[at], notes[at + 1]) end
redis.call('HSET', notes_key, 'count', as_integer(files), 'bytes', as_integer(bytes))
if count > 0 then redis.call('ZADD', paths_key, 0, path .. '\0' .. note) end

renew(ttl)
return {is_new and 'ok' or 'same'}
