-- Goes after said.lua, before the scripts that delete.

-- Returns the number of a new part of the trash, above every sequence number of the thread.
local function next_trash_number()
  local next_seq = redis.call('HGET', KEYS[1], 'next_seq')
  return as_integer(math.max(next_seq or 0, first_seq() + 1))
end

-- Adds a part of the trash to its list. It expires with the vectors, or stays while their renewal is under way.
local function register_trash(number)
  local owner, expiry, next_expiry, renew_from = unpack(redis.call('HMGET', KEYS[1], 'user', 'vectors_expire_at',
    'next_vectors_expire_at', 'renew_vectors_from'))
  local is_first = redis.call('EXISTS', KEYS[9]) == 0
  redis.call('HSET', KEYS[9], number, owner)
  expiry = not renew_from and (next_expiry or expiry)
  local function expire(key, expiry)
    if expiry then redis.call('PEXPIREAT', key, expiry) else redis.call('PERSIST', key) end
  end
  for _, kind in ipairs({'order', 'superseded', 'messages'}) do expire(trash_key(number, kind), expiry) end
  expire(KEYS[9], is_first and expiry)
end

-- Moves all messages of the thread into the trash, at the same cost for any number.
local function trash_all_messages()
  local number, is_any = next_trash_number(), false
  for kind, key in pairs({order = KEYS[2], superseded = KEYS[7], messages = KEYS[3]}) do
    if redis.call('EXISTS', key) == 1 then
      redis.call('RENAME', key, trash_key(number, kind))
      is_any = true
    end
  end
  if is_any then register_trash(number) end
  redis.call('UNLINK', KEYS[5], KEYS[6], KEYS[8])
end

-- Deletes a slice of the trash. Returns the number of vectors deleted.
local function empty_trash(within_budget)
  local dropped = 0
  for _, number in ipairs(redis.call('HKEYS', KEYS[9])) do
    local messages = trash_key(number, 'messages')
    for _, kind in ipairs({'order', 'superseded'}) do
      local key = trash_key(number, kind)
      local cursor = visit_messages(key, messages, '-inf', within_budget, function(_, seq, value)
        dropped = dropped + delete_vectors(seq, value)
      end)
      if cursor then
        redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. cursor)
        return dropped
      end
      redis.call('UNLINK', key)
    end
    redis.call('UNLINK', messages)
    redis.call('HDEL', KEYS[9], number)
  end
  redis.call('HDEL', KEYS[1], 'trash')
  return dropped
end
