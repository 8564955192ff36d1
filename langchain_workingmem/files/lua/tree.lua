-- Goes before every script over the files of an owner.
-- KEYS[1] tombstone (STRING)  KEYS[2] paths (ZSET): <path>\0<note> of each file  KEYS[3] texts (HASH): path -> content;
-- <path>\0<revision> -> content of an older revision  KEYS[4] notes (HASH): <path>\0<revision> -> note of an older revision;
-- path -> note of a file that was deleted; count, bytes -> numbers  KEYS[5] done (HASH): token of a call -> its reply, for MINUTES
-- A note is "<revision> <first_at> <changed> <bytes> <kind> <what> <who>": times in us, kind t (text), b (bytes) or d (deleted).
local paths_key, texts_key, notes_key, done_key = KEYS[2], KEYS[3], KEYS[4], KEYS[5]

local function as_integer(number)
  return string.format('%.0f', number)
end

local function now()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function parse(note)
  local revision, first_at, changed, size, kind, what, who = string.match(note, '^(%d+) (%d+) (%d+) (%d+) (%a) (%a+) (.*)$')
  return {note = note, revision = tonumber(revision), first_at = first_at, changed = tonumber(changed), size = tonumber(size),
    kind = kind, what = what, who = who}
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

-- Returns why a file may not be made at a path, nil if it may: what is in the way is a directory, or a file above it.
local function in_the_way(path)
  if has_below(path) then return {'directory', path} end
  local at = string.find(path, '/', 2, true)
  while at do
    local above = string.sub(path, 1, at - 1)
    if is_live(note_of(above)) then return {'below', above} end
    at = string.find(path, '/', at + 1, true)
  end
end

-- Returns the reply that a call with this token has had: it is sent again after a lost reply.
local MINUTES = 2
local function reply_before(token)
  local reply = redis.call('HGET', done_key, token)
  return reply and cmsgpack.unpack(reply)
end

-- Renews the expiry (ms from now). 0 ends it; '' leaves it, and gives it to keys that are new.
local function renew(ttl)
  local expiry = ttl ~= '' and ttl ~= '0' and math.min(now() / 1000 + ttl, 9223372036854) -- as LATEST in common.lua
    or redis.call('PEXPIRETIME', notes_key)
  if expiry <= 0 then return end
  for at = 2, 4 do
    if ttl == '0' then redis.call('PERSIST', KEYS[at]) else redis.call('PEXPIREAT', KEYS[at], as_integer(expiry)) end
  end
end

-- Ends a change: notes the reply, and renews the expiry.
local function done(token, ttl, reply)
  redis.call('HSET', done_key, token, cmsgpack.pack(reply))
  redis.call('HPEXPIRE', done_key, MINUTES * 60000, 'FIELDS', 1, token)
  renew(ttl)
  return reply
end

local function new_note(revision, first_at, changed, size, kind, what, who)
  return as_integer(revision) .. ' ' .. first_at .. ' ' .. as_integer(changed) .. ' ' .. size .. ' ' .. kind .. ' ' .. what
    .. ' ' .. who
end

-- Returns the fields of a file's revisions up to a number, which have no gaps, and the bytes of their texts.
local function revisions_to(path, newest)
  local fields, bytes = {}, 0
  for revision = newest, 1, -1 do
    local field = path .. '\0' .. as_integer(revision)
    local note = redis.call('HGET', notes_key, field)
    if not note then break end
    fields[#fields + 1] = field
    bytes = bytes + string.match(note, '^%d+ %d+ %d+ (%d+)')
  end
  return fields, bytes
end

local function forget(fields)
  for _, field in ipairs(fields) do
    redis.call('HDEL', notes_key, field)
    redis.call('HDEL', texts_key, field)
  end
end

-- Writes a revision of a file, which is `file` with the text `before` until now. Returns the reply.
local function put(path, file, before, text, kind, what, who, limits)
  local keep, most_bytes, most_files = unpack(limits)
  local is_new = not is_live(file)
  local refused = is_new and in_the_way(path)
  if refused then return refused end
  local count, bytes = unpack(redis.call('HMGET', notes_key, 'count', 'bytes'))
  count, bytes = tonumber(count or 0), tonumber(bytes or 0)
  local at, first_at, number, too_old, gone = now(), nil, 0, {}, 0
  if file then
    at, first_at, number = math.max(at, file.changed + 1), file.first_at, file.revision
    too_old, gone = revisions_to(path, number - keep)
  end
  local more = #text - gone
  if is_new and count >= most_files then return {'files', count} end
  if more > 0 and bytes + more > most_bytes then return {'bytes', bytes + more} end
  local note = new_note(number + 1, first_at or as_integer(at), at, #text, kind, what, who)
  local notes, texts = {'count', as_integer(count + (is_new and 1 or 0)), 'bytes', as_integer(bytes + more)}, {path, text}
  if file then
    local kept = path .. '\0' .. as_integer(number)
    notes[5], notes[6] = kept, file.note
    if not is_new then texts[3], texts[4] = kept, before end
  end
  redis.call('HSET', texts_key, unpack(texts))
  redis.call('HSET', notes_key, unpack(notes))
  if is_new then redis.call('HDEL', notes_key, path) else redis.call('ZREM', paths_key, path .. '\0' .. file.note) end
  redis.call('ZADD', paths_key, 0, path .. '\0' .. note)
  forget(too_old)
  return {'ok', note}
end
