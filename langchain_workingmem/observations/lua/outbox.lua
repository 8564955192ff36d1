-- Reads what a thread has yet to tell the log of its resource, takes messages out of what is covered first, or notes what was told.
-- ARGV  'read'; 'raise' and an epoch; 'reopen' and sequence numbers, or * for all; 'cover' and ranges that the log covers now;
--       'group' and what is cited together now (12,13;14,15); 'told', the epoch, the last batch and the hidden ranges that were
--       told
-- Reply owner of the thread ('' without a thread), HGETALL of what observations cover, created_at of the thread, its expiry (ms
--       since the epoch, -1: none) and ttl
local owner = redis.call('HGET', KEYS[1], 'resource') or ''
if owner ~= '' and redis.call('HGET', KEYS[10], 'scope') == 'r' then
  if ARGV[1] == 'raise' then
    redis.call('HSET', KEYS[10], 'epoch', as_integer(math.max(ARGV[2] + 1, redis.call('HGET', KEYS[10], 'epoch') or 0)))
  elseif ARGV[1] == 'reopen' then
    local seqs = {}
    for at = 2, #ARGV do seqs[#seqs + 1] = ARGV[at] end
    if seqs[1] == '*' then
      seqs = {}
      for _, range in ipairs(parse_ranges(redis.call('HGET', KEYS[10], 'known'))) do
        for seq = range[1], range[2] do seqs[#seqs + 1] = seq end
      end
    end
    reopen(seqs)
  elseif ARGV[1] == 'cover' then
    local known = parse_ranges(redis.call('HGET', KEYS[10], 'known'))
    local ranges = subtract_ranges(known, subtract_ranges(known, parse_ranges(ARGV[2])))
    redis.call('HSET', KEYS[10], 'covered', write_ranges(ranges))
    redis.call('HDEL', KEYS[1], 'pending')
    drop_uncovered_documents()
    refresh_hidden()
  elseif ARGV[1] == 'group' then
    local groups = redis.call('HGET', KEYS[10], 'groups') or ''
    redis.call('HSET', KEYS[10], 'groups', groups == '' and ARGV[2] or groups .. ';' .. ARGV[2])
  elseif ARGV[1] == 'told' then
    local fields, is_all = redis.call('HGETALL', KEYS[10]), true
    for at = 1, #fields, 2 do
      local batch = tonumber(string.match(fields[at], '^out:(%d+)'))
      if batch and batch <= tonumber(ARGV[3]) then
        redis.call('HDEL', KEYS[10], fields[at])
      elseif batch then
        is_all = false
      end
    end
    if (redis.call('HGET', KEYS[10], 'epoch') or '0') == ARGV[2] then
      redis.call('HDEL', KEYS[10], 'forget')
      if is_all and (redis.call('HGET', KEYS[10], 'hidden') or '') == ARGV[4] then
        redis.call('HDEL', KEYS[10], 'unpublished')
      end
    end
  end
end
local created_at, ttl = unpack(redis.call('HMGET', KEYS[1], 'created_at', 'ttl'))
return {owner, redis.call('HGETALL', KEYS[10]), created_at or '', redis.call('PEXPIRETIME', KEYS[1]), ttl or ''}
