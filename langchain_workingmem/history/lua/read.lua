-- Reads messages of a thread.
-- ARGV  user or '', then option, value, ...:
--       limit (without it: all), newest (read backwards), before / after (message ids, exclusive), above / below (sequence numbers,
--       exclusive), since / until (us, inclusive), roles (,human,ai,), count (return a total), vectors (return them),
--       superseded (instead of the current branch), times (return only the time of each message)
-- Reply total (-1 without count), then for each message id, seq, value, [vector documents], or its time (us); WMOWNER,
--       WMNOMESSAGE before or after.
-- The cost follows the number of returned messages; with roles, of those between them too, and with count of all.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
local option = {}
for at = 2, #ARGV, 2 do option[ARGV[at]] = ARGV[at + 1] end
local limit, roles = tonumber(option.limit or math.huge), option.roles
local counts_roles = roles and option.count
local order = option.superseded and KEYS[7] or KEYS[2]

-- before, after, since and until bound what is counted; above and below, the cursor, bound what is returned
local first, last = -1, math.huge
for _, side in ipairs({'before', 'after'}) do
  if option[side] then
    local seq = redis.call('ZSCORE', KEYS[2], option[side]) or redis.call('ZSCORE', KEYS[7], option[side])
    if not seq then return redis.error_reply('WMNOMESSAGE ' .. side) end
    if side == 'before' then last = tonumber(seq) else first = tonumber(seq) end
  end
end

-- The sequence number of the first message stored at a time or later, by bisection: times rise strictly with the sequence.
local function first_at(micros)
  local low, high = 0, redis.call('ZCARD', order)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local id = redis.call('ZRANGE', order, middle, middle)[1]
    local stored_at = string.match(redis.call('HGET', KEYS[3], id), HEADER)
    if tonumber(stored_at) < micros then low = middle + 1 else high = middle end
  end
  return tonumber(redis.call('ZRANGE', order, low, low, 'WITHSCORES')[2] or math.huge)
end
if option.since then first = math.max(first, first_at(tonumber(option.since)) - 1) end
if option['until'] then last = math.min(last, first_at(tonumber(option['until']) + 1)) end

local function bound(seq)
  if seq == math.huge then return '+inf' end
  return string.format('(%.17g', seq) -- an older version of a message stands between two numbers
end
local above = math.max(first, tonumber(option.above or -1))
local below = math.min(last, tonumber(option.below or math.huge))
local low, high = bound(above), bound(below)
if counts_roles then low, high = bound(first), bound(last) end
local total = -1
if option.count then total = roles and 0 or redis.call('ZCOUNT', order, bound(first), bound(last)) end

local function has_role(value)
  local rest = select(7, string.match(value, HEADER))
  return string.find(roles, ',' .. role_at(value, rest) .. ',', 1, true)
end

local function vectors_of(seq, value)
  local found = {}
  for _, key in ipairs(vector_keys(seq, value)) do found[#found + 1] = redis.call('HGETALL', key) end
  return found
end

local reply, taken = {total}, 0
local step = roles and 200 or math.min(limit, 500)
while step > 0 do
  local ranked
  if option.newest then
    ranked = redis.call('ZRANGE', order, high, low, 'BYSCORE', 'REV', 'LIMIT', 0, step, 'WITHSCORES')
    high = '(' .. (ranked[#ranked] or '')
  else
    ranked = redis.call('ZRANGE', order, low, high, 'BYSCORE', 'LIMIT', 0, step, 'WITHSCORES')
    low = '(' .. (ranked[#ranked] or '')
  end
  if #ranked == 0 then break end
  local ids = {}
  for at = 1, #ranked, 2 do ids[#ids + 1] = ranked[at] end
  for at, value in ipairs(redis.call('HMGET', KEYS[3], unpack(ids))) do
    local seq = ranked[2 * at]
    if not roles or has_role(value) then
      if counts_roles then total = total + 1 end
      if taken < limit and tonumber(seq) > above and tonumber(seq) < below then
        taken = taken + 1
        if option.times then
          reply[#reply + 1] = string.match(value, HEADER)
        else
          reply[#reply + 1] = ids[at]
          reply[#reply + 1] = seq
          reply[#reply + 1] = value
          if option.vectors then reply[#reply + 1] = vectors_of(seq, value) end
        end
      end
    end
  end
  if taken >= limit and not counts_roles then break end
  if not roles then step = math.min(limit - taken, 500) end
end
reply[1] = total
return reply
