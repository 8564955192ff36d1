-- Deletes a file, or a slice of a directory.
-- ARGV  token; path; who; ttl (ms), 0 or ''; revisions to keep; files at most; 1: forget the revisions, too; the pattern of the notes
--       below the path, and the cursor of the slice of them where it looks for files that were deleted before
-- Reply {'ok', number of files, 1 if some are left, next cursor or '0', 1 if something was forgotten}, {'missing'}. Errors: WMDELETED.
local refused_by = redis.call('GET', KEYS[1])
if refused_by then return redis.error_reply('WMDELETED ' .. refused_by) end
local token, path, who, ttl, keep, most, purge, pattern, cursor = unpack(ARGV)
local before = reply_before(token)
if before then return before end
check_types()
keep, most = tonumber(keep), tonumber(most)
local began, gone, bytes, forgotten = os.clock(), 0, 0, 0

local function remove(path, file)
  local kept = path .. '\0' .. as_integer(file.revision)
  if purge == '1' then
    local fields, size = revisions_to(path, file.revision - 1)
    forget(fields)
    redis.call('HDEL', notes_key, path, path .. '\0>')
    bytes, forgotten = bytes - size - file.size, forgotten + 1
  else
    local fields, size = revisions_to(path, file.revision - keep)
    local note = new_note(file.revision + 1, file.first_at, math.max(now(), file.changed + 1), 0, 'd', 'delete', who)
    redis.call('HSET', texts_key, kept, redis.call('HGET', texts_key, path) or '')
    redis.call('HSET', notes_key, kept, file.note, path, note)
    forget(fields)
    bytes = bytes - size
  end
  if is_live(file) then
    redis.call('ZREM', paths_key, path .. '\0' .. file.note)
    redis.call('HDEL', texts_key, path)
    gone = gone + 1
  end
end

local file = note_of(path)
local is_scanning = purge == '1' and not is_live(file) -- nothing is below a file
if is_live(file) or (file and purge == '1') then remove(path, file) end
local members = redis.call('ZRANGE', paths_key, '[' .. path .. '/', '(' .. path .. '0', 'BYLEX', 'LIMIT', 0, most)
for _, member in ipairs(members) do
  local ends = string.find(member, '\0', 1, true)
  remove(string.sub(member, 1, ends - 1), parse(string.sub(member, ends + 1)))
  if os.clock() - began > 0.008 then break end
end
local left, next_cursor = has_below(path) and 1 or 0, '0'
if is_scanning and left == 0 then
  local found
  next_cursor, found = unpack(redis.call('HSCAN', notes_key, cursor, 'MATCH', pattern, 'COUNT', 1000))
  for at = 1, #found, 2 do
    if not string.find(found[at], '\0', 1, true) then remove(found[at], parse(found[at + 1])) end
  end
elseif is_scanning then
  next_cursor = cursor
end
if gone == 0 and forgotten == 0 and next_cursor == '0' then return {'missing'} end
if left == 0 then redis.call('HDEL', notes_key, path .. '\0>') end
redis.call('HINCRBY', notes_key, 'bytes', as_integer(bytes))
local count = redis.call('HINCRBY', notes_key, 'count', -gone)
if count == 0 and redis.call('HLEN', notes_key) == 2 then redis.call('DEL', notes_key) end -- nothing is left
return done(token, ttl, {'ok', gone, left, next_cursor, forgotten > 0 and 1 or 0})
