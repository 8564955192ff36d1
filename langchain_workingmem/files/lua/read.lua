-- Reads a file, or one of its revisions.
-- ARGV  path; revision, or '': the present one
-- Reply {note, content}; {note} of a deletion, or of a file whose content Redis has evicted; {} if there is none;
--       {0} if the path is a directory; {1} if nobody knows, as Redis has evicted the paths or the notes
local path, revision = ARGV[1], ARGV[2]
local file = note_of(path)
if not file then return has_below(path) and {0} or is_damaged() and {1} or {} end
if revision == '' or tonumber(revision) == file.revision then
  if file.kind == 'd' then return has_below(path) and {0} or {file.note} end
  return {file.note, redis.call('HGET', texts_key, path) or nil}
end
local note = redis.call('HGET', notes_key, path .. '\0' .. revision)
if not note then return {} end
return {note, redis.call('HGET', texts_key, path .. '\0' .. revision) or nil}
