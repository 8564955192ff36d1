-- In front of the scripts that delete, behind said.lua.

-- A number for a new part of the trash, above every sequence number of the thread.
local function next_trash_number()
  local next_seq = redis.call('HGET', KEYS[1], 'next_seq')
  return as_integer(math.max(next_seq or 0, first_seq() + 1))
end

-- Lists a part of the trash. It expires with the vectors, unless not all of them hold a lease.
local function register_trash(number)
  local owner, held, coming, tending = unpack(redis.call('HMGET', KEYS[1], 'resource', 'vectors_expire_at', 'next_vectors_expire_at', 'renew_vectors_from'))
  local is_first = redis.call('EXISTS', KEYS[9]) == 0
  redis.call('HSET', KEYS[9], number, owner)
  local ends = not tending and (coming or held)
  for _, key in ipairs({trash_key(number, 'order'), trash_key(number, 'superseded'), trash_key(number, 'messages')}) do
    if ends then redis.call('PEXPIREAT', key, ends) else redis.call('PERSIST', key) end
  end
  if ends and is_first then redis.call('PEXPIREAT', KEYS[9], ends) else redis.call('PERSIST', KEYS[9]) end
end

-- Puts all messages of the thread into the trash, which costs the same however many they are.
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

-- Deletes a slice of what is in the trash. Returns the number of vectors that it has deleted.
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
