-- Renames one file with its revisions. They follow those of a deleted file of the new path, without gaps. The old path
-- keeps a note as of a deleted file: a file that is made there later has no revisions that readers know already.
-- ARGV  as changing.lua; new path; bytes at most
-- Reply {'ok'}, {'tree'}: the path is a directory, {'missing'}, {'exists'}, {'directory', path}, {'below', file above},
--       {'bytes', bytes}
local MOVED = 4194304 -- bytes of older revisions that move along, the newest first: to copy more takes too long at once
local to, most_bytes = ARGV[6], tonumber(ARGV[7])
local there = note_of(to)
if not is_live(file) then return {has_below(path) and 'tree' or 'missing'} end
if is_live(there) then return {'exists'} end
local refused = in_the_way(to)
if refused then return refused end

local text, fields = redis.call('HGET', texts_key, path), revisions_to(path, file.revision - 1)
local kept, older, more_gone, size = 0, {}, 0, 0
while kept < math.min(keep - 1, #fields) do -- keep - 1: one is the file as it is
  size = size + parse(redis.call('HGET', notes_key, fields[kept + 1])).size
  if size > MOVED then break end
  kept = kept + 1
end
local _, gone = revisions_to(path, file.revision - 1 - kept)
local number = there and there.revision or file.revision - 1 - kept
local last = number + kept + 1
if there then older, more_gone = revisions_to(to, math.min(last - keep, number - 1)) end
local more = file.size - gone - more_gone
local bytes = redis.call('HGET', notes_key, 'bytes') + more
if more > 0 and bytes > most_bytes then return {'bytes', bytes} end

local at = math.max(now(), file.changed + 1, there and there.changed + 1 or 0)
local note = new_note(file.revision + 1, file.first_at, at, 0, 'd', 'rename')
redis.call('HSET', notes_key, path, note, 'bytes', as_integer(bytes))
if there then
  if last - keep < number then redis.call('HSET', notes_key, to .. '\0' .. as_integer(number), there.note) end
  redis.call('HDEL', notes_key, to)
end
local function keep_as(number, note, text)
  local field = to .. '\0' .. as_integer(number)
  redis.call('HSET', notes_key, field, as_integer(number) .. string.match(note, '^%d+(.*)$'))
  if text then redis.call('HSET', texts_key, field, text) end
end
for at = kept, 1, -1 do
  local field = fields[at]
  keep_as(last - at, redis.call('HGET', notes_key, field), redis.call('HGET', texts_key, field))
end
forget(fields)
forget(older)
keep_as(last, file.note, text)
redis.call('HSET', texts_key, to, text)
redis.call('HDEL', texts_key, path)
redis.call('ZREM', paths_key, path .. '\0' .. file.note)
redis.call('ZADD', paths_key, 0, to .. '\0' .. new_note(last + 1, file.first_at, at, file.size, file.kind, 'rename'))
return done()
