-- Deletes a file, or a slice of a directory.
-- ARGV  token; path; who; ttl (ms) or ''; revisions to keep; 1: forget the revisions, too; files at most
-- Reply {'ok', number of files, 1 if some are left}, {'missing'}. Errors: WMDELETED.
if redis.call('EXISTS', KEYS[1]) == 1 then return redis.error_reply('WMDELETED the resource is being deleted') end
local token, path, who, ttl, keep, purge, most = unpack(ARGV)
local before = reply_before(token)
if before then return before end
keep, most = tonumber(keep), tonumber(most)
local began, gone, bytes, forgotten = os.clock(), 0, 0, 0
local is_found = redis.call('HGET', notes_key, 'recall')

local function forget(path, revision)
  for at = revision, 1, -1 do
    local key = path .. '\0' .. as_integer(at)
    local note = redis.call('HGET', notes_key, key)
    if not note then return end
    redis.call('HDEL', notes_key, key)
    redis.call('HDEL', texts_key, key)
    bytes = bytes - parse(note).size
  end
end

local function remove(path, file)
  if is_live(file) then
    redis.call('ZREM', paths_key, path .. '\0' .. file.note)
    if purge == '1' then bytes = bytes - file.size else bytes = bytes + keep_revision(path, file, keep) end
    redis.call('HDEL', texts_key, path)
    if is_found then forget_found(path, false) end
    gone = gone + 1
  end
  if purge == '1' then
    redis.call('HDEL', notes_key, path)
    forget(path, file.revision - 1)
    forgotten = forgotten + 1
  else
    local note = new_note(file.revision + 1, file.first_at, math.max(now(), file.changed + 1), 0, 'd', 'delete', who)
    redis.call('HSET', notes_key, path, note)
  end
end

local file = note_of(path)
if is_live(file) or (file and purge == '1') then remove(path, file) end
local left = 0
local members = redis.call('ZRANGE', paths_key, '[' .. path .. '/', '(' .. path .. '0', 'BYLEX', 'LIMIT', 0, most)
for _, member in ipairs(members) do
  local ends = string.find(member, '\0', 1, true)
  remove(string.sub(member, 1, ends - 1), parse(string.sub(member, ends + 1)))
  if os.clock() - began > 0.01 then break end
end
if gone == 0 and forgotten == 0 then return {'missing'} end
redis.call('HINCRBY', notes_key, 'count', -gone)
redis.call('HINCRBY', notes_key, 'bytes', as_integer(bytes))
return done(token, ttl, {'ok', gone, has_below(path) and 1 or 0})
