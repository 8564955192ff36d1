-- Writes a copy of a thread, batch by batch, vectors and times included: a clone, or what is imported.
-- ARGV  mode, resource, thread as a tag, number of thread fields and values, those (for a thread that is not there yet), then
--       for each message id, 1 when it is superseded (2: as an older version of the message behind it), value, and for each chunk that its header counts: number of fields and
--       values, those
-- Modes new: the thread must not be there
--       begin, more, end: likewise in several steps; in between the thread has `unfinished`, the word behind the mode and a colon
--       join: it is made unless it is there; messages that it holds are left alone
-- An older version comes in front of its message, in the same call; it is left out where the thread has the message already.
-- Times stay as they are in the values, but rise strictly: one that does not is put just behind the message before, and
-- 0 stands for now.
-- Reply 1 when the thread was made, number of messages that were new, number of these and those known that have no vectors,
--       HGETALL of the thread; WMEXISTS, WMUNFINISHED (it is there, and nobody has finished it yet), WMOWNER, WMNOTHREAD.
local mode, token = string.match(ARGV[1], '^(%a+):?(.*)$')
local resource, tag, width = ARGV[2], ARGV[3], tonumber(ARGV[4])
local place = 5 + width
check_key_types()
local present, made = now(), 0
if redis.call('EXISTS', KEYS[1]) == 0 then
  if mode == 'more' or mode == 'end' then return redis.error_reply('WMNOTHREAD') end
  made = 1
  local at = as_integer(present)
  init_thread(at)
  redis.call('HSET', KEYS[1], 'resource', resource)
  call_in_batches('HSET', KEYS[1], 5, 4 + width)
  if mode == 'begin' then redis.call('HSET', KEYS[1], 'unfinished', token) end
  refresh_labels()
-- the ids of a copy are new: one that is there means that this batch was written before, and its reply was lost
elseif mode ~= 'join' and redis.call('HEXISTS', KEYS[3], ARGV[place] or '') == 0 then
  local writer = redis.call('HGET', KEYS[1], 'unfinished')
  if writer ~= token or mode == 'new' or mode == 'begin' then
    if writer and (mode == 'new' or mode == 'begin') and not wrong_owner(resource) then
      return redis.error_reply('WMUNFINISHED')
    end
    return redis.error_reply('WMEXISTS the thread exists')
  end
end
local refusal = wrong_owner(resource)
if refusal then return refusal end
local thread = redis.call('HMGET', KEYS[1], 'next_seq', 'last_at')
local seq, last_at = tonumber(thread[1]), tonumber(thread[2] or 0)
local count, bare, upto = 0, 0, tokens_said()
local new, versions = 0, {}
while place <= #ARGV do
  local id, is_behind, value = ARGV[place], ARGV[place + 1] ~= '0', ARGV[place + 2]
  local is_version = ARGV[place + 1] == '2'
  local at, model, size, chunks, said, state, rest = string.match(value, HEADER)
  local known = redis.call('HGET', KEYS[3], id)
  if known then
    model = select(2, string.match(known, HEADER))
  elseif is_version then
    versions[#versions + 1] = {id, value}
  else
    for number, version in ipairs(versions) do
      local at, _, size, _, said, state, rest = string.match(version[2], HEADER)
      at = as_integer(math.max(tonumber(at) == 0 and present or tonumber(at), last_at + 1))
      redis.call('HSET', KEYS[3], version[1], header(at, '', size, 0, said, state) .. string.sub(version[2], rest))
      redis.call('ZADD', KEYS[7], seq - 1 + number / (#versions + 1), version[1])
      if string.sub(said, -1) == '!' then redis.call('HINCRBY', KEYS[1], 'refused', 1) end
    end
    new = new + #versions
    at = tonumber(at)
    last_at = math.max(at == 0 and present or at, last_at + 1)
    -- sequence numbers are those of this thread: no checkpointer's state knows them, and what was said is summed up anew
    local words, weight, mark = string.match(said, '^(%w*)/(%d+)/%d+(!?)')
    if words ~= '' and not is_behind then upto = upto + weight end
    said = words .. '/' .. weight .. '/' .. as_integer(words ~= '' and upto or 0) .. mark
    if state ~= '' then state = 't' end
    redis.call('HSET', KEYS[3], id,
      header(as_integer(last_at), model, size, chunks, said, state) .. string.sub(value, rest))
    if mark ~= '' then redis.call('HINCRBY', KEYS[1], 'refused', 1) end
    if is_behind then
      redis.call('ZADD', KEYS[7], as_integer(seq), id)
    else
      redis.call('ZADD', KEYS[2], as_integer(seq), id)
      add_said(as_integer(seq), said)
      count = count + 1
    end
  end
  if model == '' and not is_behind then bare = bare + 1 end
  place = place + 3
  for chunk = 0, chunks - 1 do
    local fields = tonumber(ARGV[place])
    if not known and fields > 0 then -- none: somebody evicted the vector
      local key = vector_key(as_integer(seq), chunk, size)
      redis.call('HSET', key, unpack(ARGV, place + 1, place + fields))
      redis.call('HSET', key, 'resource', resource, 'thread', tag, 'message', id, 'created_at', as_integer(last_at))
      expire_vector(key)
    end
    place = place + 1 + fields
  end
  if not known and not is_version then
    new = new + 1
    seq = seq + 1
  end
  if not is_version then versions = {} end
end
if new > 0 then
  redis.call('HSET', KEYS[1], 'next_seq', as_integer(seq), 'last_at', as_integer(last_at))
  redis.call('HINCRBY', KEYS[1], 'count', count)
end
if mode == 'end' then redis.call('HDEL', KEYS[1], 'unfinished') end
renew_ttl()
return {made, new, bare, redis.call('HGETALL', KEYS[1])}
