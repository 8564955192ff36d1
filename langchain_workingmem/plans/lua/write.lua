-- ARGV  mode, resource (or ''), thread as a tag, model, ttl in ms (or '': as it is), then for each message
--       id, body (its JSON without the first brace), role, name, labels, size, number of chunks, (text, vector) ...
-- Modes append: insert what is new, replace what differs, leave what is equal
--       update: replace existing messages; WMNOMESSAGE <number, from 0>, and nothing written, when one is missing
--       heal:   give new vectors to messages that are still what they were when they were read
-- `model` is empty when this call brings no vectors.
-- Reply number of messages that were new, number in the thread, 1 when it has a title, updated_at; WMOWNER, WMNOTHREAD.
local mode, resource, tag, model, ttl = unpack(ARGV, 1, 5)
local refusal = stranger(resource)
if refusal then return refusal end
local thread = redis.call('HMGET', KEYS[1], 'resource', 'next_seq', 'last_at')
if not thread[1] and mode ~= 'append' then
  return redis.error_reply('WMNOTHREAD')
end
local owner = thread[1] or resource
local next_seq = tonumber(thread[2] or 0)
local last_at = tonumber(thread[3] or 0)
local present = now()

if mode == 'update' then
  local place, number = 6, 0
  while place <= #ARGV do
    if redis.call('HEXISTS', KEYS[3], ARGV[place]) == 0 then
      return redis.error_reply('WMNOMESSAGE ' .. number)
    end
    number = number + 1
    place = place + 7 + 2 * ARGV[place + 6]
  end
end

local inserted, changed = 0, false
local place = 6
while place <= #ARGV do
  local id, body, role, name, labels, size = unpack(ARGV, place, place + 5)
  local chunks = tonumber(ARGV[place + 6])
  local seq = redis.call('ZSCORE', KEYS[2], id)
  local stored_at
  local write
  if seq then
    local old = redis.call('HGET', KEYS[3], id)
    local at, old_model, _, _, rest = string.match(old, HEADER)
    local same = string.sub(old, rest) == body
    if same then
      write = model ~= '' and (old_model ~= model or mode == 'heal')
    else
      write = mode ~= 'heal'
      changed = changed or write
    end
    stored_at = at
    if write then drop_vectors(seq, old) end
  elseif mode ~= 'heal' then
    write = true
    changed = true
    seq = whole(next_seq)
    next_seq = next_seq + 1
    last_at = math.max(present, last_at + 1) -- strictly rising, even when the clock jumps back
    stored_at = whole(last_at)
    inserted = inserted + 1
    redis.call('ZADD', KEYS[2], seq, id)
  end
  if write then
    redis.call('HSET', KEYS[3], id,
      '{"stored_at":' .. stored_at .. ',"vectors":"' .. model .. '/' .. size .. '/' .. chunks .. '",' .. body)
    for chunk = 0, chunks - 1 do
      local text, vector = ARGV[place + 7 + 2 * chunk], ARGV[place + 8 + 2 * chunk]
      local key = vector_key(seq, chunk, size)
      redis.call('HSET', key, 'resource', owner, 'thread', tag, 'message', id, 'role', role, 'name', name,
        'labels', labels, 'created_at', stored_at, 'text', text, 'vector', vector)
      hold(key)
    end
  end
  place = place + 7 + 2 * chunks
end

if changed then
  local at = whole(math.max(present, last_at))
  if not thread[1] then
    redis.call('HSET', KEYS[1], 'resource', owner, 'created_at', at, 'labels', '')
  end
  redis.call('HSET', KEYS[1], 'updated_at', at, 'next_seq', whole(next_seq), 'last_at', whole(last_at))
  redis.call('HINCRBY', KEYS[1], 'count', inserted)
end
if thread[1] or changed then
  if ttl ~= '' then redis.call('HSET', KEYS[1], 'ttl', ttl) end
  keep()
end
local state = redis.call('HMGET', KEYS[1], 'count', 'title', 'updated_at')
return {inserted, tonumber(state[1] or 0), state[2] and 1 or 0, state[3] or ''}
