-- Tells the log of a resource what has changed in one of its threads.
-- KEYS[1] tombstone of the resource (STRING)  KEYS[2] its log (HASH)
-- ARGV  the thread as a tag, its epoch, ranges that are hidden, ranges to forget, created_at of the thread, its expiry (ms
--       since the epoch, or -1) and ttl ('' without one), 1 if the thread has told the log something before, then for each
--       batch its number, the ranges that it covers, number of observations and |<sources>|<JSON> of each
-- Reply 1, what the forgotten observations cite beside (tag, seq, ...), and threads that may have expired: tag, created_at, ...;
--       0 and the epoch of the log, if that has forgotten messages since the caller read the thread; -1 if the log is gone;
-- WMDELETED.
-- A batch is added once: the log knows the last batch of each thread.
if redis.call('EXISTS', KEYS[1]) == 1 then return redis.error_reply('WMDELETED the resource is being deleted') end
local tag, epoch, hidden, forget = ARGV[1], tonumber(ARGV[2]), ARGV[3], parse_ranges(ARGV[4])
local last_epoch = redis.call('HGET', KEYS[2], 'epoch:' .. tag) or '0'
if epoch < tonumber(last_epoch) then return {0, last_epoch} end
local is_new = is_new_log(KEYS[2])
if ARGV[8] == '1' and redis.call('HEXISTS', KEYS[2], 'revision') == 0 then return {-1} end
local cited, expired = {}, {}
local function forget_all(ranges)
  for _, part in ipairs(purge_log(KEYS[2], tag, ranges)) do cited[#cited + 1] = part end
end
local born = redis.call('HGET', KEYS[2], 'born:' .. tag)
if born and born ~= ARGV[5] then -- it was a thread of the same id, which has expired
  redis.call('HDEL', KEYS[2], 'batch:' .. tag)
  forget_all(ALL)
end
if born ~= ARGV[5] then redis.call('HSET', KEYS[2], 'born:' .. tag, ARGV[5]) end
if #forget > 0 and epoch > tonumber(last_epoch) then -- else another process has told the same
  redis.call('HSET', KEYS[2], 'epoch:' .. tag, ARGV[2])
  forget_all(forget)
end
local kept = {}
for other, ranges in string.gmatch(redis.call('HGET', KEYS[2], 'hidden') or '', '([^:;]+):([%d,-]+)') do
  if other ~= tag then kept[#kept + 1] = other .. ':' .. ranges end
end
if hidden ~= '' then kept[#kept + 1] = tag .. ':' .. hidden end
redis.call('HSET', KEYS[2], 'hidden', table.concat(kept, ';'))
local argument = 9
while argument <= #ARGV do
  local batch, seqs, count = ARGV[argument], ARGV[argument + 1], tonumber(ARGV[argument + 2])
  if tonumber(batch) > tonumber(redis.call('HGET', KEYS[2], 'batch:' .. tag) or 0) then
    local number = redis.call('HINCRBY', KEYS[2], 'next', count) - count + 1
    for at = 0, count - 1 do
      local id = as_integer(number + at)
      redis.call('HSET', KEYS[2], 'o:' .. id, id .. ARGV[argument + 3 + at])
    end
    local numbers = count > 0 and write_ranges({{number, number + count - 1}}) or ''
    local present = redis.call('HGET', KEYS[2], 'present')
    local chunk = tag .. '/' .. seqs .. '/' .. numbers .. '/0'
    write_revision(KEYS[2], (present and present ~= '' and present .. ';' or '') .. chunk, 'observe')
    redis.call('HSET', KEYS[2], 'batch:' .. tag, batch)
  end
  argument = argument + 3 + count
end
local expiry = ARGV[7] ~= '' and tonumber(ARGV[6]) or nil
note_expiry(KEYS[2], tag, expiry, ARGV[7])
keep_log(KEYS[2], expiry, is_new)
for other, at in string.gmatch(redis.call('HGET', KEYS[2], 'expires') or '', '([^:;]+):(%d+):%d+;') do
  if tonumber(at) * 1000 <= now() then
    expired[#expired + 1] = other
    expired[#expired + 1] = redis.call('HGET', KEYS[2], 'born:' .. other) or ''
  end
end
return {1, cited, expired}
