-- Reads files that recall does not find yet, in a slice. At the first call, all files wait.
-- ARGV  settings of the vectors; 1: look for all that lack vectors, or have those of other settings; path to begin with, or ''
-- Reply {1 if some may be left, path, revision, text...}. Errors: WMDELETED.
local refused_by = redis.call('GET', KEYS[1])
if refused_by then return redis.error_reply('WMDELETED ' .. refused_by) end
local settings, all, begin = ARGV[1], ARGV[2], ARGV[3]
local vectors_key, prefix = found_keys()
local began, bytes, found = os.clock(), 0, {0}
if redis.call('EXISTS', notes_key) == 0 then return found end
local known, ends = unpack(redis.call('HMGET', notes_key, 'recall', 'recall_until'))
local expiry = redis.call('PEXPIRETIME', notes_key)
local is_short = ends and expiry < 0 or expiry > 0 and expiry - (ends or 0) > (expiry - now() / 1000) / 8
if not known or all == '1' or is_short then
  local low = '-'
  while true do
    local members = redis.call('ZRANGE', paths_key, low, '+', 'BYLEX', 'LIMIT', 0, 1000)
    if #members == 0 then break end
    for _, member in ipairs(members) do
      local path = string.sub(member, 1, string.find(member, '\0', 1, true) - 1)
      local score = redis.call('ZSCORE', vectors_key, path)
      if not score or tonumber(score) >= 0 then redis.call('ZADD', vectors_key, as_integer(-1 - chunks_of(score)), path) end
    end
    low = '(' .. members[#members]
  end
  if not known or all == '1' then redis.call('HSET', notes_key, 'recall', settings) end
  if expiry > 0 then
    redis.call('HSET', notes_key, 'recall_until', as_integer(expiry))
    redis.call('PEXPIREAT', vectors_key, as_integer(expiry))
  else
    redis.call('HDEL', notes_key, 'recall_until')
    redis.call('PERSIST', vectors_key)
  end
end

-- Keeps the vectors of a file that has not changed: only their expiry was too early.
local function keep(path, file, chunks)
  if chunks == 0 then return false end
  local start = prefix .. redis.sha1hex(path) .. ':'
  local at = redis.call('HGET', start .. '0', 'at')
  local wanted = as_integer(file.revision) .. ' ' .. as_integer(chunks) .. ' ' .. settings .. ' '
  if not at or string.sub(at, 1, #wanted) ~= wanted or redis.call('EXISTS', start .. as_integer(chunks - 1)) == 0 then return false end
  for chunk = 0, chunks - 1 do
    local key = start .. as_integer(chunk)
    if expiry > 0 then redis.call('PEXPIREAT', key, as_integer(expiry)) else redis.call('PERSIST', key) end
  end
  redis.call('ZADD', vectors_key, chunks, path)
  return true
end

local function take(path, chunks)
  local file = note_of(path)
  if not is_live(file) or file.kind ~= 't' then
    drop_chunks(prefix, path, 0, chunks)
    redis.call('ZREM', vectors_key, path)
  elseif not keep(path, file, chunks) then
    local text = redis.call('HGET', texts_key, path) or ''
    found[#found + 1], found[#found + 2], found[#found + 3] = path, as_integer(file.revision), text
    bytes = bytes + #text
  end
end

local first = begin ~= '' and redis.call('ZSCORE', vectors_key, begin)
if first and tonumber(first) < 0 then take(begin, chunks_of(first)) else begin = '' end
local waiting = redis.call('ZRANGE', vectors_key, '-inf', '(0', 'BYSCORE', 'LIMIT', 0, 100, 'WITHSCORES')
for at = 1, #waiting, 2 do
  if bytes > 262144 or os.clock() - began > 0.02 then
    found[1] = 1
    return found
  end
  if waiting[at] ~= begin then take(waiting[at], chunks_of(waiting[at + 1])) end
end
if #waiting == 200 then found[1] = 1 end
return found
