-- Goes after said.lua, before the scripts that move messages between branches.

-- Lowers a field of the thread, which holds a sequence number, to `seq`.
local function lower(field, seq)
  redis.call('HSET', KEYS[1], field, as_integer(math.min(seq, redis.call('HGET', KEYS[1], field) or seq)))
end

-- Deletes a slice of the vectors that superseded messages still have. Returns how many.
local function drop_superseded_vectors(within_budget)
  local cursor, dropped = redis.call('HGET', KEYS[1], 'drop_vectors_from'), 0
  if not cursor then return 0 end
  cursor = visit_messages(KEYS[7], KEYS[3], cursor, within_budget, function(id, seq, value)
    if vector_count(value) > 0 then dropped = dropped + clear_vectors(id, seq, value) end
  end)
  if cursor then
    redis.call('HSET', KEYS[1], 'drop_vectors_from', cursor)
  else
    redis.call('HDEL', KEYS[1], 'drop_vectors_from')
  end
  return dropped
end

-- Supersedes a range of the current branch without reading its messages; slices delete the vectors. Returns how many.
local function supersede_range(low, high)
  -- Moves all members of a sorted set into another, at the cost of the smaller one.
  local function merge(from, key)
    if redis.call('EXISTS', key) == 0 then return redis.call('RENAME', from, key) end
    local small, large = from, key
    if redis.call('ZCARD', key) < redis.call('ZCARD', from) then small, large = key, from end
    if redis.call('ZCARD', small) > 5000 then
      redis.call('ZUNIONSTORE', key, 2, key, from)
    else
      local ranked = redis.call('ZRANGE', small, 0, -1, 'WITHSCORES')
      for at = 1, #ranked, 2 do redis.call('ZADD', large, ranked[at + 1], ranked[at]) end
      if large == from then return redis.call('RENAME', from, key) end
    end
    redis.call('UNLINK', from)
  end

  -- Moves the range from one sorted set to another, or deletes it, at the cost of what stays or of what goes.
  local function cut(key, to)
    local count, moving = redis.call('ZCOUNT', key, low, high), KEYS[9] .. ':moving'
    if count == 0 then return end
    local from_low = redis.call('ZCOUNT', key, low, '+inf')
    local before = redis.call('ZCARD', key) - from_low
    if from_low == count and before < count then
      redis.call('RENAME', key, moving)
      if before > 0 then
        redis.call('ZRANGESTORE', key, moving, 0, before - 1)
        redis.call('ZREMRANGEBYRANK', moving, 0, before - 1)
      end
    else
      if to then redis.call('ZRANGESTORE', moving, key, low, high, 'BYSCORE') end
      redis.call('ZREMRANGEBYSCORE', key, low, high)
    end
    if to then merge(moving, to) else redis.call('UNLINK', moving) end
  end

  local count = redis.call('ZCOUNT', KEYS[2], low, high)
  if count == 0 then return 0 end
  local first = redis.call('ZRANGE', KEYS[2], low, high, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  cut(KEYS[2], KEYS[7])
  cut(KEYS[5])
  cut(KEYS[6])
  lower('drop_vectors_from', first)
  drop_superseded_vectors(new_budget(hooks.changed and MIN_MESSAGES or SLICE_VECTORS)) -- few where a room takes its time, too
  return count
end

-- Takes messages off the current branch; they stay stored, without vectors. Returns how many were on it.
local MANY = 1000 -- ids from which on it pays to see whether they are a range
local function supersede_messages(ids)
  if #ids > MANY then
    local first, last = redis.call('ZSCORE', KEYS[2], ids[1]), redis.call('ZSCORE', KEYS[2], ids[#ids])
    local range = first and last and redis.call('ZRANGE', KEYS[2], first, last, 'BYSCORE') or {}
    local is_range = #range == #ids
    for at, id in ipairs(range) do is_range = is_range and id == ids[at] end
    if is_range then return supersede_range(first, last) end
  end
  local within_budget, count, drop_from = new_budget(SLICE_VECTORS), 0, nil
  for start = 1, #ids, 500 do
    local batch = {unpack(ids, start, math.min(start + 499, #ids))}
    local seqs, values = redis.call('ZMSCORE', KEYS[2], unpack(batch)), redis.call('HMGET', KEYS[3], unpack(batch))
    local moved, gone, said_before = {}, {}, {}
    for at, id in ipairs(batch) do
      local seq, value = seqs[at], values[at]
      if seq and value then
        local _, _, _, chunks, said = string.match(value, HEADER)
        said_before[#said_before + 1] = seq .. ':' .. said
        moved[#moved + 1] = seq
        moved[#moved + 1] = id
        gone[#gone + 1] = id
        if not drop_from and within_budget(tonumber(chunks)) then
          clear_vectors(id, seq, value)
        elseif chunks ~= '0' then
          drop_from = math.min(drop_from or seq, seq)
        end
      end
    end
    if #gone > 0 then
      redis.call('ZREM', KEYS[5], unpack(said_before))
      redis.call('ZREM', KEYS[6], unpack(said_before))
      count = count + redis.call('ZREM', KEYS[2], unpack(gone))
      redis.call('ZADD', KEYS[7], unpack(moved))
    end
  end
  if drop_from then lower('drop_vectors_from', drop_from) end
  return count
end

-- Keeps an older version of a message that is about to be edited under its id: a superseded message with another id,
-- whose sequence number is a fraction below that of the message.
local function keep_version(id, seq, value)
  local at, _, size, _, said, state, rest = string.match(value, HEADER)
  local older = redis.call('ZRANGE', KEYS[7], '(' .. as_integer(seq - 1), '(' .. seq, 'BYSCORE')
  local version = string.sub(id, 1, 400) .. '~' .. string.match(said, '^%w*')
  while redis.call('HEXISTS', KEYS[3], version) == 1 do version = version .. '~' end
  redis.call('HSET', KEYS[3], version, header(at, '', size, 0, said, state) .. string.sub(value, rest))
  refer(value, 1)
  older[#older + 1] = version
  for number, one in ipairs(older) do
    redis.call('ZADD', KEYS[7], seq - 1 + number / (#older + 1), one)
  end
end

-- Swaps a message with one of its older versions. Returns the id of the message.
local function restore_version(version, seq)
  local number = as_integer(seq_of(seq))
  local current = redis.call('ZRANGE', KEYS[2], number, number, 'BYSCORE')[1]
  local id = current or redis.call('ZRANGE', KEYS[7], number, number, 'BYSCORE')[1]
  if not id then return version end
  local value, old = redis.call('HGET', KEYS[3], id), redis.call('HGET', KEYS[3], version)
  local _, _, _, _, said = string.match(value, HEADER)
  delete_vectors(number, value)
  if current then remove_said(number, said) end
  redis.call('ZREM', KEYS[7], version)
  redis.call('HDEL', KEYS[3], version)
  keep_version(id, number, value)
  redis.call('HSET', KEYS[3], id, old)
  refer(value, -1) -- the older version takes its media along
  edited[#edited + 1] = number
  local _, _, _, _, old_said = string.match(old, HEADER)
  if current then add_said(number, old_said) end
  return id
end

-- Puts a superseded message back on the current branch. Returns 1, or 0 if it was not superseded, and its id.
local function restore_message(id)
  local seq = redis.call('ZSCORE', KEYS[7], id)
  if seq and string.find(seq, '.', 1, true) then
    id = restore_version(id, seq)
    seq = redis.call('ZSCORE', KEYS[7], id)
  end
  if not seq then return 0, id end
  local value = redis.call('HGET', KEYS[3], id)
  local _, _, _, chunks, said = string.match(value, HEADER)
  redis.call('ZREM', KEYS[7], id)
  redis.call('ZADD', KEYS[2], seq, id)
  add_said(seq, said)
  if chunks ~= '0' then
    -- its vectors were not deleted yet; renewals and a change of the owner have left them out
    for _, key in ipairs(vector_keys(seq, value)) do expire_vector(key) end
    lower('renew_vectors_from', seq)
  end
  return 1, id
end
