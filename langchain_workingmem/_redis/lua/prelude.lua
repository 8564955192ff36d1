-- In front of the scripts that write, behind header.lua.

-- Microseconds since the epoch. A double holds them exactly, but Lua prints it rounded: hence `as_integer`.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Calls a command for the arguments from ARGV[first] to ARGV[last], a thousand at a time: one by one, Search would read a
-- document with thousands of labels again for each of them, and `unpack` cannot take any number.
local function call_in_batches(command, key, first, last)
  for at = first, last, 1000 do
    redis.call(command, key, unpack(ARGV, at, math.min(at + 999, last)))
  end
end

local function vector_key(seq, chunk, size)
  return KEYS[4] .. seq .. ':' .. chunk .. ':' .. size
end

-- The keys of a stored message's vectors.
local function vector_keys(seq, value)
  local _, _, size, chunks = string.match(value, HEADER)
  local keys = {}
  for chunk = 0, (chunks or 0) - 1 do
    keys[#keys + 1] = vector_key(seq, chunk, size)
  end
  return keys
end

local function delete_vectors(seq, value)
  local keys, dropped = vector_keys(seq, value), 0
  for at = 1, #keys, 1000 do
    dropped = dropped + redis.call('UNLINK', unpack(keys, at, math.min(at + 999, #keys)))
  end
  return dropped
end

-- What concerns all vectors of a thread is done in slices, because nobody else is served while a script runs.
-- Returns a function that is asked in front of each message, and told how many vectors it has: false when the slice is over.
-- A slice ends behind `most` vectors, or when it has taken too long; a few messages are in it however long they take.
local SLICE, FEW, SECONDS = 500, 20, 0.01
local function new_budget(most)
  local began, messages, vectors = os.clock(), 0, 0
  return function(more)
    messages, vectors = messages + 1, vectors + more
    return messages == 1 or (vectors <= most and (messages <= FEW or os.clock() - began < SECONDS))
  end
end

local function vector_count(value)
  local _, _, _, chunks = string.match(value, HEADER)
  return tonumber(chunks or 0)
end

-- Calls visit(id, seq, value) for the messages of a sorted set from a sequence number on, until the slice is over. Returns
-- where the next one begins; nothing when this was the last.
local function visit_messages(key, messages, low, within_budget, visit)
  while true do
    local ranked = redis.call('ZRANGE', key, low, '+inf', 'BYSCORE', 'LIMIT', 0, 100, 'WITHSCORES')
    if #ranked == 0 then return end
    local ids = {}
    for at = 1, #ranked, 2 do ids[#ids + 1] = ranked[at] end
    for at, value in ipairs(redis.call('HMGET', messages, unpack(ids))) do
      if value then -- else somebody evicted all of them
        if not within_budget(vector_count(value)) then return ranked[2 * at] end
        visit(ids[at], ranked[2 * at], value)
      end
    end
    low = '(' .. ranked[#ranked]
  end
end

-- Takes the vectors of a message away, and says in it that it has none.
local function clear_vectors(id, seq, value)
  local at, _, size, _, said, state, rest = string.match(value, HEADER)
  redis.call('HSET', KEYS[3], id, header(at, '', size, 0, said, state) .. string.sub(value, rest))
  return delete_vectors(seq, value)
end

-- Gives the vectors of the current branch the owner and the lease of their thread, a slice of them. `renew_vectors_from` tells where
-- the next slice begins. A message whose vectors have gone (evicted, or expired while nobody went on) says so from then on,
-- so that reindex() heals it.
local function renew_vectors(within_budget)
  local owner, cursor, coming = unpack(redis.call('HMGET', KEYS[1], 'resource', 'renew_vectors_from', 'next_vectors_expire_at'))
  if not cursor then return end
  cursor = visit_messages(KEYS[2], KEYS[3], cursor, within_budget, function(id, seq, value)
    local is_bare = false
    for _, key in ipairs(vector_keys(seq, value)) do
      local named = redis.call('HGET', key, 'resource')
      is_bare = is_bare or not named
      if named and named ~= owner then redis.call('HSET', key, 'resource', owner) end
      -- one that was written since may hold a longer lease; GT leaves alone what has none
      if named and coming and redis.call('PEXPIREAT', key, coming, 'GT') == 0 then
        redis.call('PEXPIREAT', key, coming, 'NX')
      end
    end
    if is_bare then clear_vectors(id, seq, value) end
  end)
  if cursor then
    redis.call('HSET', KEYS[1], 'renew_vectors_from', cursor)
  else
    if coming then redis.call('HSET', KEYS[1], 'vectors_expire_at', coming) end
    redis.call('HDEL', KEYS[1], 'renew_vectors_from', 'next_vectors_expire_at')
  end
end

-- A thread with a `ttl` (ms) expires that long after its last write, all its own keys in one instant. Its vectors may be
-- many, so they hold a `vectors_expire_at` (ms since the epoch) of up to three times that. A write begins a round that renews it when less
-- than two are left. A round takes several slices and is never begun anew before it is through, so it ends however often
-- it is interrupted. For one more ttl nothing depends on it; then the thread is `vectors_expire_first`: some vectors might expire before
-- it, and a writer does the slices before its call returns.
-- `expire_vector` is for each vector that is written, `renew_ttl` for the end of every write. Returns 0 when nothing is left to be done, 1 when
-- slices are, 2 when the thread is late. `given` is the ttl that the thread is about to get, if any.
local lease
local function expire_vector(vector, given)
  if lease == nil then
    local held, coming, ttl = unpack(redis.call('HMGET', KEYS[1], 'vectors_expire_at', 'next_vectors_expire_at', 'ttl'))
    ttl = given or ttl
    lease = coming or held
    local present = math.floor(now() / 1000)
    if ttl and (not lease or tonumber(lease) < present + ttl) then lease = as_integer(present + 3 * ttl) end
  end
  if lease then
    redis.call('PEXPIREAT', vector, lease)
  else
    redis.call('PERSIST', vector) -- one of the same name may be left of a thread that has expired
  end
end

-- Begins a round when one is due and none is under way. Returns whether it has begun.
local function start_renewal()
  local ttl, held, coming = unpack(redis.call('HMGET', KEYS[1], 'ttl', 'vectors_expire_at', 'next_vectors_expire_at'))
  local ends = redis.call('PEXPIRETIME', KEYS[1])
  if not ttl or ends < 0 or coming or tonumber(held or 0) >= ends + ttl then return false end
  redis.call('HSET', KEYS[1], 'next_vectors_expire_at', as_integer(ends + 2 * ttl), 'renew_vectors_from', 0)
  return true
end

-- Writes down whether the thread is late. Returns what `renew_ttl` does.
local function remaining_work()
  local held, coming, late, tending, behind, trash =
    unpack(redis.call('HMGET', KEYS[1], 'vectors_expire_at', 'next_vectors_expire_at', 'vectors_expire_first', 'renew_vectors_from', 'drop_vectors_from', 'trash'))
  -- without a lease all vectors stay, or were written in the first round
  local least = tonumber(held or coming)
  if tending and least and least < redis.call('PEXPIRETIME', KEYS[1]) then
    if not late then redis.call('HSET', KEYS[1], 'vectors_expire_first', 1) end
    return 2
  end
  if late then redis.call('HDEL', KEYS[1], 'vectors_expire_first') end
  return (tending or behind or trash) and 1 or 0
end

local function renew_ttl()
  local ttl = redis.call('HGET', KEYS[1], 'ttl')
  if ttl then
    local ends = as_integer(math.floor(now() / 1000) + ttl)
    for _, place in ipairs({1, 2, 3, 5, 6, 7, 8, 10, 11}) do
      redis.call('PEXPIREAT', KEYS[place], ends)
    end
    if start_renewal() then renew_vectors(new_budget(SLICE)) end
  end
  return remaining_work()
end

-- The trash holds what was deleted, until its vectors are gone: for each number a part of a thread under the names of `trash_key`.
local function trash_key(number, kind)
  return KEYS[9] .. ':' .. number .. ':' .. kind
end

-- The sequence number of the first message of a new thread: no slice may take its vectors for those in the trash of an older
-- thread of the same name.
local function first_seq()
  local first = 0
  for _, number in ipairs(redis.call('HKEYS', KEYS[9])) do first = math.max(first, number) end
  return first
end

-- Fields of a new thread.
local function init_thread(at)
  local first = first_seq()
  redis.call('HSET', KEYS[1], 'created_at', at, 'updated_at', at, 'count', 0, 'next_seq', as_integer(first))
  if first > 0 then redis.call('HSET', KEYS[1], 'trash', 1) end
end

-- Fails when another program has put something else under a name of the thread: before the first write, so that a script
-- writes all or nothing. KEYS[4] is no key, so that the intersection is empty at once.
local function check_key_types()
  redis.call('ZINTERCARD', 6, KEYS[2], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], 'LIMIT', 1)
  redis.call('HLEN', KEYS[3])
end

-- An error reply when working memory must not be written: its thread is gone or somebody else's, its resource is deleted.
local function memory_refusal(resource)
  if #KEYS == 3 then
    return redis.call('EXISTS', KEYS[1]) == 1 and redis.error_reply('WMDELETED the resource is being deleted')
  end
  if redis.call('EXISTS', KEYS[1]) == 0 then return redis.error_reply('WMNOTHREAD') end
  return wrong_owner(resource)
end

-- `labels` makes each pair of the metadata a tag, so that the index can filter on any of them.
local function refresh_labels()
  local fields = redis.call('HGETALL', KEYS[1])
  local labels = {}
  for at = 1, #fields, 2 do
    local key = string.match(fields[at], '^metadata:(.*)$')
    if key then labels[#labels + 1] = redis.sha1hex(key .. '=' .. fields[at + 1]) end
  end
  redis.call('HSET', KEYS[1], 'labels', table.concat(labels, ','))
end
