-- In front of the scripts that change what is on the current branch, behind prelude.lua.

-- Takes a message of the current branch into what the history counts, or out of it.
local function add_said(seq, said)
  local kind = string.sub(said, 1, 1)
  if string.sub(said, -1) == '!' then return end
  if kind == '/' then return end
  redis.call('ZADD', KEYS[5], seq, seq .. ':' .. said)
  if kind == 'a' then redis.call('ZADD', KEYS[6], seq, seq .. ':' .. said) end
end

local function remove_said(seq, said)
  redis.call('ZREM', KEYS[5], seq .. ':' .. said)
  redis.call('ZREM', KEYS[6], seq .. ':' .. said)
end

-- The tokens of all that was said on the current branch.
local function tokens_said()
  local last = redis.call('ZRANGE', KEYS[5], -1, -1)[1]
  return last and parse_said(last).upto or 0
end

-- `drop_vectors_from` tells from where on superseded messages may still have vectors.
local function drop_vectors_later(seq)
  redis.call('HSET', KEYS[1], 'drop_vectors_from', as_integer(math.min(seq, redis.call('HGET', KEYS[1], 'drop_vectors_from') or seq)))
end

-- Takes a slice of the vectors away that superseded messages still have. Returns how many.
local function drop_superseded_vectors(within_budget)
  local cursor, dropped = redis.call('HGET', KEYS[1], 'drop_vectors_from'), 0
  if not cursor then return 0 end
  cursor = visit_messages(KEYS[7], KEYS[3], cursor, within_budget, function(id, seq, value)
    if vector_count(value) > 0 then dropped = dropped + clear_vectors(id, seq, value) end
  end)
  if cursor then redis.call('HSET', KEYS[1], 'drop_vectors_from', cursor) else redis.call('HDEL', KEYS[1], 'drop_vectors_from') end
  return dropped
end

-- Takes all messages of a range off the current branch without looking at any. Their vectors go in slices.
local function supersede_range(low, high)
  -- Adds a sorted set to another, at the cost of the smaller one.
  local function join(from, key)
    if redis.call('EXISTS', key) == 0 then return redis.call('RENAME', from, key) end
    local number, others = redis.call('ZCARD', from), redis.call('ZCARD', key)
    if math.min(number, others) > 5000 then
      redis.call('ZUNIONSTORE', key, 2, key, from)
    else
      local small, large = from, key
      if others < number then small, large = key, from end
      local ranked = redis.call('ZRANGE', small, 0, -1, 'WITHSCORES')
      for at = 1, #ranked, 2 do redis.call('ZADD', large, ranked[at + 1], ranked[at]) end
      if large == from then return redis.call('RENAME', from, key) end
    end
    redis.call('UNLINK', from)
  end

  -- Takes a range out of a sorted set, and adds it to another where one is named, at the cost of what stays or of what goes.
  local function cut(key, low, high, to)
    local count, moving = redis.call('ZCOUNT', key, low, high), KEYS[9] .. ':moving'
    if count == 0 then return end
    local in_front = redis.call('ZCARD', key) - redis.call('ZCOUNT', key, low, '+inf')
    if redis.call('ZCOUNT', key, low, '+inf') == count and in_front < count then
      redis.call('RENAME', key, moving)
      if in_front > 0 then
        redis.call('ZRANGESTORE', key, moving, 0, in_front - 1)
        redis.call('ZREMRANGEBYRANK', moving, 0, in_front - 1)
      end
    else
      if to then redis.call('ZRANGESTORE', moving, key, low, high, 'BYSCORE') end
      redis.call('ZREMRANGEBYSCORE', key, low, high)
    end
    if to then join(moving, to) else redis.call('UNLINK', moving) end
  end

  local count = redis.call('ZCOUNT', KEYS[2], low, high)
  if count == 0 then return 0 end
  local first = redis.call('ZRANGE', KEYS[2], low, high, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  cut(KEYS[2], low, high, KEYS[7])
  cut(KEYS[5], low, high)
  cut(KEYS[6], low, high)
  drop_vectors_later(first)
  drop_superseded_vectors(new_budget(SLICE))
  return count
end

-- Takes messages off the current branch; they stay stored, without vectors. Returns how many were on it.
local MANY = 1000
local function supersede_messages(ids)
  if #ids == 0 then return 0 end
  if #ids > MANY then
    local first, last = redis.call('ZSCORE', KEYS[2], ids[1]), redis.call('ZSCORE', KEYS[2], ids[#ids])
    local there = first and last and redis.call('ZRANGE', KEYS[2], first, last, 'BYSCORE') or {}
    local is_range = #there == #ids
    for at, id in ipairs(there) do is_range = is_range and id == ids[at] end
    if is_range then return supersede_range(first, last) end
  end
  local within_budget, count, waits = new_budget(SLICE), 0, nil
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
        if not waits and within_budget(tonumber(chunks)) then
          clear_vectors(id, seq, value)
        elseif chunks ~= '0' then
          waits = math.min(waits or seq, seq)
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
  if waits then drop_vectors_later(waits) end
  return count
end

-- Keeps the words that a question had before it was edited under its id: an older version is superseded, stands between two
-- sequence numbers, in front of its message, and has an id of its own.
local function keep_version(id, seq, value)
  local at, _, size, _, said, state, rest = string.match(value, HEADER)
  local older = redis.call('ZRANGE', KEYS[7], '(' .. as_integer(seq - 1), '(' .. seq, 'BYSCORE')
  local version = string.sub(id, 1, 400) .. '~' .. string.match(said, '^%w*')
  while redis.call('HEXISTS', KEYS[3], version) == 1 do version = version .. '~' end
  redis.call('HSET', KEYS[3], version, header(at, '', size, 0, said, state) .. string.sub(value, rest))
  older[#older + 1] = version
  for number, one in ipairs(older) do
    redis.call('ZADD', KEYS[7], seq - 1 + number / (#older + 1), one)
  end
end

-- Gives a message its older words back; those of now become a version. Returns the id of the message.
local function restore_version(version, seq)
  local number = as_integer(seq_of(seq))
  local key = KEYS[2]
  local id = redis.call('ZRANGE', key, number, number, 'BYSCORE')[1]
  if not id then
    key = KEYS[7]
    id = redis.call('ZRANGE', key, number, number, 'BYSCORE')[1]
  end
  if not id then return version end
  local value, old = redis.call('HGET', KEYS[3], id), redis.call('HGET', KEYS[3], version)
  local _, _, _, _, said = string.match(value, HEADER)
  delete_vectors(number, value)
  if key == KEYS[2] then remove_said(number, said) end
  redis.call('ZREM', KEYS[7], version)
  redis.call('HDEL', KEYS[3], version)
  keep_version(id, number, value)
  redis.call('HSET', KEYS[3], id, old)
  local _, _, _, _, old_said = string.match(old, HEADER)
  if key == KEYS[2] then add_said(number, old_said) end
  return id
end

-- Puts a message that was superseded back on the current branch. Returns 1, or 0 when it is not superseded, and its id.
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
  if chunks ~= '0' then -- it has its vectors still, and the thread may have changed hands meanwhile
    -- no round has renewed them while they were superseded
    for _, key in ipairs(vector_keys(seq, value)) do expire_vector(key) end
    redis.call('HSET', KEYS[1], 'renew_vectors_from', as_integer(math.min(seq, redis.call('HGET', KEYS[1], 'renew_vectors_from') or seq)))
  end
  return 1, id
end
