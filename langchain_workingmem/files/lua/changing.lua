-- Goes before the scripts that change a file, behind tree.lua. A call that is sent again has the same reply.
-- ARGV  token; path; who; ttl (ms), 0 or ''; older revisions to keep; more of each script
-- Reply {'damaged'}: Redis has evicted a part. Errors: WMDELETED.
local token, path, who, ttl, keep = unpack(ARGV, 1, 5)
keep = tonumber(keep)
local refused_by = redis.call('GET', KEYS[1])
if refused_by then return redis.error_reply('WMDELETED ' .. refused_by) end
local before = redis.call('HGET', done_key, token)
if before then return cmsgpack.unpack(before) end
if path ~= '/' and is_damaged() then return {'damaged'} end
local file = note_of(path)

-- Ends a change: notes the reply, and renews the expiry.
local function done(...)
  local reply = {'ok', ...}
  redis.call('HSET', done_key, token, cmsgpack.pack(reply))
  redis.call('HPEXPIRE', done_key, 120000, 'FIELDS', 1, token)
  renew(ttl)
  return reply
end

local function new_note(revision, first_at, changed, size, kind, what)
  return table.concat({as_integer(revision), first_at, as_integer(changed), size, kind, what, who}, ' ')
end

-- Returns the fields of a file's revisions up to a number, which have no gaps, and the bytes of their texts.
local function revisions_to(path, newest)
  local fields, bytes = {}, 0
  for revision = newest, 1, -1 do
    local field = path .. '\0' .. as_integer(revision)
    local note = redis.call('HGET', notes_key, field)
    if not note then break end
    fields[#fields + 1], bytes = field, bytes + parse(note).size
  end
  return fields, bytes
end

local function forget(fields)
  for _, field in ipairs(fields) do
    redis.call('HDEL', notes_key, field)
    redis.call('HDEL', texts_key, field)
  end
end

