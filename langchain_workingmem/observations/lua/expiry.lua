-- Goes after prelude.lua, before the scripts that keep the log of a resource as long as its threads.
-- `expires` of the log says when its threads expire: <tag>:<ms since the epoch>:<ttl in ms>;... A thread without a ttl is not
-- in it.
-- A write that the log is not told of may renew a thread, so the log only forgets what its reader finds gone (settle.lua).

-- Returns when a thread expires and its ttl, as the log knows them.
local function expiry_of(key, tag)
  local list = ';' .. (redis.call('HGET', key, 'expires') or '')
  local at = string.find(list, ';' .. tag .. ':', 1, true)
  if at then return string.match(list, '^(%d+):(%d+);', at + #tag + 2) end
end

-- Notes when a thread expires; without an expiry it stays.
local function note_expiry(key, tag, expiry, ttl)
  local before = redis.call('HGET', key, 'expires')
  local list = ';' .. (before or '')
  local at = string.find(list, ';' .. tag .. ':', 1, true)
  if at then list = string.sub(list, 1, at) .. string.sub(list, string.find(list, ';', at + 1, true) + 1) end
  if expiry then list = list .. tag .. ':' .. as_integer(expiry) .. ':' .. as_integer(ttl) .. ';' end
  list = string.sub(list, 2)
  if list == '' then
    if before then redis.call('HDEL', key, 'expires') end
  elseif list ~= before then
    redis.call('HSET', key, 'expires', list)
  end
end

-- Lets the log expire with the last of its threads, and not if one of them stays. `is_new`: no thread has told it anything before.
local function keep_log(key, expiry, is_new)
  local present = redis.call('PEXPIRETIME', key)
  if not expiry then
    if present > 0 then redis.call('PERSIST', key) end
  elseif (present > 0 and present < tonumber(expiry)) or (present == -1 and is_new) then
    redis.call('PEXPIREAT', key, as_expiry(expiry))
  end
end

local function is_new_log(key)
  local revision, waiting = unpack(redis.call('HMGET', key, 'revision', 'waiting'))
  return not revision and not waiting
end
