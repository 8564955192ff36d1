-- Goes after header.lua, before the scripts that write.

-- Returns the microseconds since the epoch; print them with `as_integer`.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Writes the time of an expiry (ms since the epoch), 11 April 2262 at the latest. Search 8.6 keeps it as nanoseconds in 64
-- bits, so that a document with a later one would be missing in every search.
local LATEST_EXPIRY = 9223372036854
local function as_expiry(time)
  return as_integer(math.min(time, LATEST_EXPIRY))
end

-- Calls a command with ARGV[first] to ARGV[last], a thousand at a time: `unpack` has a limit, and Search indexes the
-- document again after each call.
local function call_in_batches(command, key, first, last)
  for at = first, last, 1000 do
    redis.call(command, key, unpack(ARGV, at, math.min(at + 999, last)))
  end
end

local function vector_key(seq, chunk, size)
  return KEYS[4] .. seq .. ':' .. chunk .. ':' .. size
end

-- Returns the keys of a stored message's vectors.
local function vector_keys(seq, value)
  local _, _, size, chunks = string.match(value, HEADER)
  local keys = {}
  for chunk = 0, (chunks or 0) - 1 do
    keys[#keys + 1] = vector_key(seq, chunk, size)
  end
  return keys
end

-- Deletes the vectors of a message; returns how many there were.
local function delete_vectors(seq, value)
  local keys, dropped = vector_keys(seq, value), 0
  for at = 1, #keys, 1000 do
    dropped = dropped + redis.call('UNLINK', unpack(keys, at, math.min(at + 999, #keys)))
  end
  return dropped
end

-- Work on all vectors of a thread is done in slices, because Redis serves no other client while a script runs.
-- Returns a function that takes the number of vectors of the next message, and returns false when the slice must end:
-- after `most` vectors or MAX_SECONDS. The first message always fits, and MIN_MESSAGES fit whatever the time.
local SLICE_VECTORS, MIN_MESSAGES, MAX_SECONDS = 500, 20, 0.01
local function new_budget(most)
  local began, messages, vectors = os.clock(), 0, 0
  return function(more)
    messages, vectors = messages + 1, vectors + more
    return messages == 1 or (vectors <= most and (messages <= MIN_MESSAGES or os.clock() - began < MAX_SECONDS))
  end
end

local function vector_count(value)
  local _, _, _, chunks = string.match(value, HEADER)
  return tonumber(chunks or 0)
end

-- Calls visit(id, seq, value) for the messages of a sorted set from a sequence number on, until the budget is spent.
-- Returns the sequence number at which the next slice begins, nil after the last message.
local function visit_messages(key, messages, low, within_budget, visit)
  while true do
    local ranked = redis.call('ZRANGE', key, low, '+inf', 'BYSCORE', 'LIMIT', 0, 100, 'WITHSCORES')
    if #ranked == 0 then return end
    local ids = {}
    for at = 1, #ranked, 2 do ids[#ids + 1] = ranked[at] end
    for at, value in ipairs(redis.call('HMGET', messages, unpack(ids))) do
      if value then -- Redis may have evicted the messages
        if not within_budget(vector_count(value)) then return ranked[2 * at] end
        visit(ids[at], ranked[2 * at], value)
      end
    end
    low = '(' .. ranked[#ranked]
  end
end

-- Deletes the vectors of a message, and writes into its header that it has none. Returns how many there were.
local function clear_vectors(id, seq, value)
  local at, _, size, _, said, state, rest = string.match(value, HEADER)
  redis.call('HSET', KEYS[3], id, header(at, '', size, 0, said, state) .. string.sub(value, rest))
  return delete_vectors(seq, value)
end

-- Writes the owner and the next expiry of the thread into a slice of the current branch's vectors. Where vectors were
-- evicted or have expired, the header of their message then says that it has none, so that reindex() makes new ones.
local function renew_vectors(within_budget)
  local owner, cursor, next_expiry =
    unpack(redis.call('HMGET', KEYS[1], 'user', 'renew_vectors_from', 'next_vectors_expire_at'))
  if not cursor then return end
  cursor = visit_messages(KEYS[2], KEYS[3], cursor, within_budget, function(id, seq, value)
    local is_bare = false
    local function renew(key)
      local old_owner = redis.call('HGET', key, 'user')
      if old_owner and old_owner ~= owner then redis.call('HSET', key, 'user', owner) end
      -- GT: a newer vector may expire later. GT ignores a key without expiry, hence NX.
      if old_owner and next_expiry and redis.call('PEXPIREAT', key, next_expiry, 'GT') == 0 then
        redis.call('PEXPIREAT', key, next_expiry, 'NX')
      end
      return old_owner
    end
    for _, key in ipairs(vector_keys(seq, value)) do is_bare = not renew(key) or is_bare end
    if is_bare then clear_vectors(id, seq, value) end
  end)
  if cursor then
    redis.call('HSET', KEYS[1], 'renew_vectors_from', cursor)
  else
    if next_expiry then redis.call('HSET', KEYS[1], 'vectors_expire_at', next_expiry) end
    redis.call('HDEL', KEYS[1], 'renew_vectors_from', 'next_vectors_expire_at')
  end
end

-- A thread with a `ttl` (ms) expires that long after its last write; all its own keys expire in the same millisecond.
-- Its vectors may be many, so they expire later, at `vectors_expire_at` (ms since the epoch): up to three ttl after the
-- write. When less than two ttl are left, a write starts a renewal: slices that raise the expiry of all vectors to
-- `next_vectors_expire_at`. The next renewal starts after this one is complete, so an interrupted one is continued. If
-- it takes longer than a ttl, `vectors_expire_first` is set: some vectors might expire before the thread, so writers
-- finish the renewal before they return.

-- Sets the expiry of a vector that is written. `new_ttl` is the ttl that the thread is about to get, if any.
local vector_expiry -- false: none
local function expire_vector(vector, new_ttl)
  if vector_expiry == nil then
    local expiry, next_expiry, ttl =
      unpack(redis.call('HMGET', KEYS[1], 'vectors_expire_at', 'next_vectors_expire_at', 'ttl'))
    ttl = new_ttl or ttl
    vector_expiry = next_expiry or expiry
    local present = ttl and math.floor(now() / 1000)
    if ttl and (not vector_expiry or tonumber(vector_expiry) < present + ttl) then
      vector_expiry = as_expiry(present + 3 * ttl)
    end
  end
  if vector_expiry then
    redis.call('PEXPIREAT', vector, vector_expiry)
  else
    redis.call('PERSIST', vector) -- an expired thread of the same id may have left a vector of this name
  end
end

-- Starts a renewal if one is due and none is under way. Returns whether it has.
local function start_renewal()
  local ttl, expiry, next_expiry =
    unpack(redis.call('HMGET', KEYS[1], 'ttl', 'vectors_expire_at', 'next_vectors_expire_at'))
  local thread_expiry = redis.call('PEXPIRETIME', KEYS[1])
  if not ttl or thread_expiry < 0 or next_expiry then return false end
  if tonumber(expiry or 0) >= tonumber(as_expiry(thread_expiry + ttl)) then return false end
  redis.call('HSET', KEYS[1], 'next_vectors_expire_at', as_expiry(thread_expiry + 2 * ttl), 'renew_vectors_from', 0)
  return true
end

-- Updates `vectors_expire_first`. Returns 2 if that is set, 1 if other slices are left to do, else 0.
local function remaining_work()
  local expiry, next_expiry, expire_first, renew_from, drop_from, trash = unpack(redis.call('HMGET', KEYS[1],
    'vectors_expire_at', 'next_vectors_expire_at', 'vectors_expire_first', 'renew_vectors_from', 'drop_vectors_from',
    'trash'))
  -- without `vectors_expire_at` all vectors stay, or were written during the first renewal
  local earliest = tonumber(expiry or next_expiry)
  if renew_from and earliest and earliest < redis.call('PEXPIRETIME', KEYS[1]) then
    if not expire_first then redis.call('HSET', KEYS[1], 'vectors_expire_first', 1) end
    return 2
  end
  if expire_first then redis.call('HDEL', KEYS[1], 'vectors_expire_first') end
  return (renew_from or drop_from or trash) and 1 or 0
end

-- Ends every write: a title goes with the message that a model made it from, and the thread's keys get their expiry.
-- Returns what `remaining_work` returns.
local function renew_ttl()
  local ttl, source = unpack(redis.call('HMGET', KEYS[1], 'ttl', 'title_source'))
  if source and redis.call('ZCOUNT', KEYS[5], source, source) == 0 then
    redis.call('HDEL', KEYS[1], 'title', 'title_source')
  end
  if ttl then
    local expiry = as_expiry(math.floor(now() / 1000) + ttl)
    for number, key in ipairs(KEYS) do
      if number ~= 4 and number ~= 9 then redis.call('PEXPIREAT', key, expiry) end
    end
    if start_renewal() then renew_vectors(new_budget(SLICE_VECTORS)) end
  end
  return remaining_work()
end

-- The trash holds deleted messages until their vectors are deleted: numbered parts, each under four keys.
-- Returns such a key; `kind` is order, superseded or messages.
local function trash_key(number, kind)
  return KEYS[9] .. ':' .. number .. ':' .. kind
end

-- Returns the first sequence number of a new thread. It is above those in the trash of an older thread of the same id,
-- whose vectors would have the same keys otherwise.
local function first_seq()
  local first = 0
  for _, number in ipairs(redis.call('HKEYS', KEYS[9])) do first = math.max(first, number) end
  return first
end

-- Writes the fields of a new thread.
local function init_thread(at)
  local first = first_seq()
  redis.call('HSET', KEYS[1], 'layout', LAYOUT, 'created_at', at, 'updated_at', at, 'count', 0, 'next_seq', as_integer(first))
  if first > 0 then redis.call('HSET', KEYS[1], 'trash', 1) end
end

-- Fails if another program has stored another type under a key of the thread: before the first write, so that a script
-- writes all or nothing. KEYS[4] is only a prefix, so the intersection is empty at once.
local function check_key_types()
  redis.call('ZINTERCARD', 6, KEYS[2], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], 'LIMIT', 1)
  redis.call('HLEN', KEYS[3])
  if KEYS[12] then redis.call('HLEN', KEYS[12]) end
end

-- Returns an error reply if a script must not write: the thread belongs to another user (WMOWNER), or a room has to be told
-- of changes (WMCOVERED), which the larger variant of the script does. `owner` and `covered` are fields of the thread.
local function write_refusal(user, owner, covered)
  if owner == nil then owner, covered = unpack(redis.call('HMGET', KEYS[1], 'user', 'covered')) end
  return wrong_owner(user, owner) or (covered and not KEYS[12] and redis.error_reply('WMCOVERED')) or nil
end

-- Says that what the current branch shows has changed, and which messages were edited, or deleted.
local function tell_change(seqs, is_deleted)
  if hooks.changed then hooks.changed(seqs, is_deleted) end
end

-- Returns an error reply if working memory must not be written: there is no thread, the thread belongs to another
-- user, or the user is being deleted.
local function memory_refusal(user)
  if #KEYS == 3 then
    local tombstone = redis.call('GET', KEYS[1])
    return tombstone and redis.error_reply('WMDELETED ' .. tombstone)
  end
  if redis.call('EXISTS', KEYS[1]) == 0 then return redis.error_reply('WMNOTHREAD') end
  return write_refusal(user)
end

-- Writes `labels`: a tag for each pair of the metadata, so that the index can filter on any of them.
local function refresh_labels()
  local fields = redis.call('HGETALL', KEYS[1])
  local labels = {}
  for at = 1, #fields, 2 do
    local key = string.match(fields[at], '^metadata:(.*)$')
    if key then labels[#labels + 1] = redis.sha1hex(key .. '=' .. fields[at + 1]) end
  end
  redis.call('HSET', KEYS[1], 'labels', table.concat(labels, ','))
end
