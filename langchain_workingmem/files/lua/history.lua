-- Reads the notes of a file's revisions, the newest first.
-- ARGV  path; how many at most
-- Reply notes
local path, most = ARGV[1], tonumber(ARGV[2])
local file = note_of(path)
if not file then return {} end
local notes = {file.note}
for revision = file.revision - 1, math.max(file.revision - most + 1, 1), -1 do
  local note = redis.call('HGET', notes_key, path .. '\0' .. as_integer(revision))
  if not note then break end
  notes[#notes + 1] = note
end
return notes
