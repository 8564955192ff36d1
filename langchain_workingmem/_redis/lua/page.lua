-- Reads messages of a thread.
-- ARGV  1 {user, limit, newest (read backwards), above, below (seqs, exclusive), since, until (us, inclusive),
--       superseded (instead of current ones), total (count all), times}
-- Reply {total, shown (facts), owner}, bodies of these messages (with `times` times)
local owner = redis.call('HGET', KEYS[1], 'user')
local reason = refusal(head.user, owner)
if reason or not owner then return {cjson.encode({refused = reason, total = 0}), {}} end
local set, END = head.superseded and KEYS[3] or KEYS[2], 2 ^ 53 -- above every seq

-- Returns the first seq whose message was stored at a time or later, by bisection: times rise with the seqs.
local function first_at(micros)
  local low, high = 0, redis.call('ZCARD', set)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local seq = redis.call('ZRANGE', set, middle, middle, 'WITHSCORES')[2]
    local at = string.match(redis.call('HGET', KEYS[4], seq) or '', '^[-!]?{"at":(%d+)')
    if at and tonumber(at) < micros then low = middle + 1 else high = middle end
  end
  return tonumber(redis.call('ZRANGE', set, low, low, 'WITHSCORES')[2] or END)
end

-- What is selected lies from `low` to below `high`, the page of it from `first` to below `last`.
local low = head.since and first_at(head.since) or 0
local high = head['until'] and first_at(head['until'] + 1) or END
local first, last = math.max(low, (head.above or -1) + 1), math.min(high, head.below or END)
local function below(seq) return '(' .. whole(seq) end

local found, seqs, limit = {owner = owner}, {}, head.limit or -1
if head.newest then
  found.shown = redis.call('ZRANGE', set, below(last), whole(first), 'BYSCORE', 'REV', 'LIMIT', 0, limit)
else
  found.shown = redis.call('ZRANGE', set, whole(first), below(last), 'BYSCORE', 'LIMIT', 0, limit)
end
if head.total then found.total = redis.call('ZCOUNT', set, low, below(high)) end
for at, facts in ipairs(found.shown) do seqs[at] = string.match(facts, '^%d+') end
local bodies = values_of(KEYS[4], seqs)
for at, body in ipairs(head.times and bodies or {}) do
  bodies[at] = body and tonumber(string.match(body, '^[-!]?{"at":(%d+)')) or body
end
return {cjson.encode(found), bodies}
