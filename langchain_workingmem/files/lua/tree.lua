-- Goes before every script over the files of an owner.
-- KEYS[1] tombstone (STRING)  KEYS[2] paths (ZSET): <path>\0<note> of each file
-- KEYS[3] texts (HASH): path -> content; <path>\0<revision> -> content of an older revision
-- KEYS[4] notes (HASH): <path>\0<revision> -> note of an older revision; path -> note of a deleted file; count, bytes
-- KEYS[5] done (HASH): token of a call -> its reply, for two minutes
-- A note is "<revision> <first_at> <changed> <bytes> <kind> <what> <who>": times in us; kind: text, bytes, deleted.
local paths_key, texts_key, notes_key, done_key = KEYS[2], KEYS[3], KEYS[4], KEYS[5]

local function as_integer(number)
  return string.format('%.0f', number)
end

local function now()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function parse(note)
  local revision, first_at, changed, size, kind = string.match(note, '^(%d+) (%d+) (%d+) (%d+) (%a) ')
  revision, changed, size = tonumber(revision), tonumber(changed), tonumber(size)
  return {note = note, revision = revision, first_at = first_at, changed = changed, size = size, kind = kind}
end

-- Returns the note of a file, also of a deleted one; nil if there never was one, or if it is forgotten.
local function note_of(path)
  local member = redis.call('ZRANGE', paths_key, '[' .. path .. '\0', '(' .. path .. '\1', 'BYLEX', 'LIMIT', 0, 1)[1]
  local note = member and string.sub(member, #path + 2) or redis.call('HGET', notes_key, path)
  return note and parse(note)
end

local function is_live(file)
  return file and file.kind ~= 'd'
end

local function has_below(path)
  return #redis.call('ZRANGE', paths_key, '[' .. path .. '/', '(' .. path .. '0', 'BYLEX', 'LIMIT', 0, 1) > 0
end

-- Tells whether Redis has evicted one of the keys: what is left does not say which files there were.
local function is_damaged()
  local count, has_texts = tonumber(redis.call('HGET', notes_key, 'count') or -1), redis.call('EXISTS', texts_key) == 1
  if redis.call('EXISTS', paths_key) == 1 then return count < 1 or not has_texts end
  return count > 0 or (count == -1 and has_texts)
end

-- Returns why a file may not be made at a path, nil if it may: a directory, or a file above it, is in the way.
local function in_the_way(path)
  if has_below(path) then return {'directory', path} end
  local at = string.find(path, '/', 2, true)
  while at do
    local above = string.sub(path, 1, at - 1)
    if is_live(note_of(above)) then return {'below', above} end
    at = string.find(path, '/', at + 1, true)
  end
end

-- Renews the expiry (ms from now). 0 ends it; '' leaves it, and gives it to keys that are new.
local function renew(ttl)
  local expiry = ttl ~= '' and ttl ~= '0' and math.min(now() / 1000 + ttl, 9223372036854) -- as in common.lua
    or redis.call('PEXPIRETIME', notes_key)
  if expiry <= 0 then return end
  for at = 2, 4 do
    if ttl == '0' then redis.call('PERSIST', KEYS[at]) else redis.call('PEXPIREAT', KEYS[at], as_integer(expiry)) end
  end
end
