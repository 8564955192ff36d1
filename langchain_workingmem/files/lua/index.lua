-- Stores chunks of a file for recall, if it has not changed since it was read.
-- ARGV  path; revision; settings of the vectors; owner; within; number of the first of these chunks; number of all; and then of each
--       chunk: lines; searched text; text, if it is another; vector
-- Reply 1, 0 if the file has changed. Errors: WMDELETED.
local refused_by = redis.call('GET', KEYS[1])
if refused_by then return redis.error_reply('WMDELETED ' .. refused_by) end
local path, revision, settings, owner, within, from, total = unpack(ARGV, 1, 7)
local file = note_of(path)
if not is_live(file) or file.kind ~= 't' or as_integer(file.revision) ~= revision then return {0} end
local vectors_key, prefix = found_keys()
local start, expiry = prefix .. redis.sha1hex(path) .. ':', redis.call('PEXPIRETIME', notes_key)
local known, chunk = chunks_of(redis.call('ZSCORE', vectors_key, path)), tonumber(from)
for at = 8, #ARGV, 4 do
  local lines, searched, text, vector = unpack(ARGV, at, at + 3)
  local key = start .. as_integer(chunk)
  redis.call('UNLINK', key)
  redis.call('HSET', key, 'resource', owner, 'within', within, 'path', path,
    'at', revision .. ' ' .. total .. ' ' .. settings .. ' ' .. lines, 'text', searched, 'vector', vector)
  if text ~= '' then redis.call('HSET', key, 'shown', text) end
  if expiry > 0 then redis.call('PEXPIREAT', key, as_integer(expiry)) end
  chunk = chunk + 1
end
if chunk < tonumber(total) then
  redis.call('ZADD', vectors_key, as_integer(-1 - math.max(known, chunk)), path)
else
  drop_chunks(prefix, path, chunk, known)
  redis.call('ZADD', vectors_key, as_integer(chunk), path)
end
if expiry > 0 then redis.call('PEXPIREAT', vectors_key, as_integer(expiry)) end
return {1}
