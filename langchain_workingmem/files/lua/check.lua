-- Compares what is stored of an owner's files; reads only.
-- ARGV  fields at most; more are only counted
-- Reply 1, or 0 if there are more; numbers of files, of their bytes, of contents that are lost or have another size, and of contents
--       that belong to no file; 1 if files or bytes are counted wrongly
local files, seen = redis.call('ZCARD', paths_key), redis.call('HLEN', notes_key)
local counted, bytes = unpack(redis.call('HMGET', notes_key, 'count', 'bytes'))
counted, bytes = tonumber(counted or 0), tonumber(bytes or 0)
local contents = redis.call('HLEN', texts_key)
if files + seen + contents > tonumber(ARGV[1]) then return {0, files, bytes, 0, 0, files == counted and 0 or 1} end
local kept, lost, sum = 0, 0, 0
local function look(field, note)
  sum = sum + note.size
  if not is_live(note) then return end
  local is_there = redis.call('HEXISTS', texts_key, field)
  kept = kept + is_there
  if is_there == 0 or redis.call('HSTRLEN', texts_key, field) ~= note.size then lost = lost + 1 end
end
for _, member in ipairs(redis.call('ZRANGE', paths_key, 0, -1)) do
  local ends = string.find(member, '\0', 1, true)
  look(string.sub(member, 1, ends - 1), parse(string.sub(member, ends + 1)))
end
local notes = redis.call('HGETALL', notes_key)
for at = 1, #notes, 2 do
  if string.find(notes[at], '%z%d') then look(notes[at], parse(notes[at + 1])) end
end
return {1, files, bytes, lost, contents - kept, files == counted and bytes == sum and 0 or 1}
