-- Renames one file with its revisions. They follow those of a deleted file of the new path, without gaps. The old path keeps a note as
-- of a deleted file: a file that is made there later does not have revisions that readers know already.
-- ARGV  token; old path; new path; who; ttl (ms), 0 or ''; revisions to keep; bytes at most
-- Reply {'ok'}, {'tree'}: the old path is a directory, {'missing'}, {'exists'}, {'directory', path}, {'below', file above},
--       {'bytes', bytes}, {'damaged'}. Errors: WMDELETED.
local MOVED = 4194304 -- bytes of older revisions that move along, the newest first: to copy more takes too long at once
local refused_by = redis.call('GET', KEYS[1])
if refused_by then return redis.error_reply('WMDELETED ' .. refused_by) end
local token, from, to, who, ttl, keep, most_bytes = unpack(ARGV)
local before = reply_before(token)
if before then return before end
if is_damaged() then return {'damaged'} end
keep, most_bytes = tonumber(keep), tonumber(most_bytes)
local file, there = note_of(from), note_of(to)
if not is_live(file) then return {has_below(from) and 'tree' or 'missing'} end
if is_live(there) then return {'exists'} end
local refused = in_the_way(to)
if refused then return refused end

local text = redis.call('HGET', texts_key, from) or ''
local fields = revisions_to(from, file.revision - 1)
local kept, older, more_gone, size = 0, {}, 0, 0
while kept < math.min(keep - 1, #fields) do -- keep - 1: one is the file as it is
  size = size + parse(redis.call('HGET', notes_key, fields[kept + 1])).size
  if size > MOVED then break end
  kept = kept + 1
end
local _, gone = revisions_to(from, file.revision - 1 - kept)
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
return done(token, ttl, {'ok'})
