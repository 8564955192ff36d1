-- Goes after ranges.lua, before the scripts over the values of a working memory.
-- KEYS are those of header.lua with KEYS[12], for the working memory of a thread, or of a user: tombstone, memory, revisions.
-- The values lie beside the working memory, in its slot: KEYS[13] of a thread.
-- A claim is stored as write_claim of claims.py writes it: the first part is a list of sources, each thread, message, seq, time.
local memory_key, revisions_key = unpack(KEYS, #KEYS > 3 and 10 or 2)
local values_key = string.gsub(memory_key, ':memory:([ut]):{', ':values:%1:{', 1)
if #KEYS > 3 then KEYS[13] = values_key end -- so that it expires with the thread

-- Returns an error reply if the values must not be written.
local function values_refusal(user)
  if #KEYS == 3 then
    local tombstone = redis.call('GET', KEYS[1])
    return tombstone and redis.error_reply('WMDELETED ' .. tombstone)
  end
  return redis.call('EXISTS', KEYS[1]) == 0 and redis.error_reply('WMNOTHREAD') or wrong_owner(user)
end

-- Gives the values a new version, which no version before was: a commit that has read another one is refused.
local function raise_version()
  local version = as_integer(math.max(now(), (redis.call('HGET', values_key, 'version') or 0) + 1))
  redis.call('HSET', values_key, 'version', version)
  return version
end

-- Notes that the document has to be made of the values again; no word of it stays.
local function drop_document()
  if redis.call('HEXISTS', memory_key, 'kept') == 0 then return end
  redis.call('HSET', memory_key, 'document', '', 'since', '', 'stale', 1)
end

-- Notes in which working memories a thread has values: u, t or both; from now on its changes have to be told.
local function mark_thread(scope)
  local kept = redis.call('HGET', KEYS[1], 'kept') or ''
  if not string.find(kept, scope, 1, true) then redis.call('HSET', KEYS[1], 'kept', kept .. scope) end
  redis.call('HSET', KEYS[1], 'covered', 1)
end

-- Calls visit(name, claim) for each claim that cites messages.
local function each_citing(visit)
  local fields = redis.call('HGETALL', values_key)
  for at = 1, #fields, 2 do
    if string.sub(fields[at], 1, 2) == 'c:' and string.sub(fields[at + 1], 1, 3) ~= '[[]' then
      visit(fields[at], cjson.decode(fields[at + 1]))
    end
  end
end
