-- Reads messages of a thread.
-- ARGV  1 {user, limit, newest (read backwards), before, after (ids, exclusive), above, below (seqs, exclusive), since,
--       until (us, inclusive), roles (,human,ai,), superseded (instead of current ones), total (count all), times}
-- Reply {total, shown (facts), owner}, bodies of these messages (with `times` times); {refused = 'message', missing}
-- The cost follows the number of returned messages; with roles, of those between them too, and with total of all.
local owner = redis.call('HGET', KEYS[1], 'user')
local no = refusal(head.user, owner)
if no or not owner then return {cjson.encode({refused = no, total = 0}), {}} end
local set = head.superseded and KEYS[3] or KEYS[2]

-- Returns the first seq whose message was stored at a time or later, by bisection: times rise with the seqs.
local function first_at(micros)
  local low, high = 0, redis.call('ZCARD', set)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local seq = redis.call('ZRANGE', set, middle, middle, 'WITHSCORES')[2]
    local at = string.match(redis.call('HGET', KEYS[4], seq) or '', '^[-!]?{"at":(%d+)')
    if at and tonumber(at) < micros then low = middle + 1 else high = middle end
  end
  return tonumber(redis.call('ZRANGE', set, low, low, 'WITHSCORES')[2] or math.huge)
end

-- What is selected lies from `low` to below `high`, the page of it from `first` to below `last`.
local low, high = 0, math.huge
for _, side in ipairs({'before', 'after'}) do
  local seq = head[side] and locate(redis.call('HGET', KEYS[5], head[side]))[1]
  if head[side] and not seq then return {cjson.encode({refused = 'message', missing = head[side]})} end
  if seq and side == 'before' then high = seq elseif seq then low = seq + 1 end
end
if head.since then low = math.max(low, first_at(head.since)) end
if head['until'] then high = math.min(high, first_at(head['until'] + 1)) end
local first, last = math.max(low, (head.above or -1) + 1), math.min(high, head.below or math.huge)
local function below(seq) return seq == math.huge and '+inf' or '(' .. whole(seq) end

local function has_role(seq)
  local role = string.match(redis.call('HGET', KEYS[4], seq) or '', '^[-!]?{"at":%d+,"number":%d+,"type":"(%a+)"')
  return role and string.find(head.roles, ',' .. role .. ',', 1, true)
end

local found, seqs, shown = {owner = owner}, {}, {}
local limit, counts = head.limit or math.huge, head.roles and head.total
local step, number, from, some = head.roles and 200 or math.min(limit, 500), 0, 0, nil
local from_seq, to_seq = whole(counts and low or first), below(counts and high or last)
while step > 0 and (not some or #some == step) and (#shown < limit or counts) do
  if head.newest then
    some = redis.call('ZRANGE', set, to_seq, from_seq, 'BYSCORE', 'REV', 'LIMIT', from, step)
  else
    some = redis.call('ZRANGE', set, from_seq, to_seq, 'BYSCORE', 'LIMIT', from, step)
  end
  for _, facts in ipairs(some) do
    local seq = string.match(facts, '^%d+')
    if not head.roles or has_role(seq) then
      number = number + 1
      local is_on_page = tonumber(seq) >= first and tonumber(seq) < last
      if #shown < limit and is_on_page then shown[#shown + 1], seqs[#seqs + 1] = facts, seq end
    end
  end
  from = from + step
end
if head.total then found.total = counts and number or redis.call('ZCOUNT', set, low, below(high)) end

found.shown = shown
local bodies = values_of(KEYS[4], seqs)
for at, body in ipairs(head.times and bodies or {}) do
  bodies[at] = body and tonumber(string.match(body, '^[-!]?{"at":(%d+)')) or body
end
return {cjson.encode(found), bodies}
