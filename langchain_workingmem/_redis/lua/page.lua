-- Reads messages of a thread.
-- ARGV  1 {user, limit (without it: all), newest (read backwards), before, after (ids, exclusive), above, below (seqs, exclusive: a cursor),
--       since, until (us, inclusive), roles (,human,ai,), superseded (instead of the current ones), total (count all), vectors, times}
-- Reply {total, shown, owner}, bodies of the messages `shown` (facts); with `times` only their times, with `vectors` the vectors of
--       each behind the bodies; {refused = 'message', missing}
-- The cost follows the number of returned messages; with roles, of those between them too, and with total of all.
local user = redis.call('HGET', KEYS[1], 'user')
local no = refusal(head.user, user)
if no or not user then return {cjson.encode({refused = no, total = 0}), {}} end
local found, shown, page = {owner = user}, {}, head
-- The first seq of a set whose message was stored at a time or later, by bisection: times rise with the seqs.
local function first_at(key, micros)
  local low, high = 0, redis.call('ZCARD', key)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local seq = redis.call('ZRANGE', key, middle, middle, 'WITHSCORES')[2]
    local at = string.match(redis.call('HGET', KEYS[4], seq) or '', '^[-!]?{"at":(%d+)')
    if at and tonumber(at) < micros then low = middle + 1 else high = middle end
  end
  return tonumber(redis.call('ZRANGE', key, low, low, 'WITHSCORES')[2] or math.huge)
end

local key = page.superseded and KEYS[3] or KEYS[2]
local low, high = 0, math.huge
for _, side in ipairs({'before', 'after'}) do
  if page[side] then
    local seq = locate(redis.call('HGET', KEYS[5], page[side]))[1]
    if not seq then
      return {cjson.encode({refused = 'message', missing = page[side]}), {}}
    end
    if side == 'before' then high = tonumber(seq) else low = tonumber(seq) + 1 end
  end
end
if page.since then low = math.max(low, first_at(key, page.since)) end
if page['until'] then high = math.min(high, first_at(key, page['until'] + 1)) end
local function bound(seq) return seq == math.huge and '+inf' or '(' .. whole(seq) end
if page.total then found.total = redis.call('ZCOUNT', key, low, bound(high)) end
local first, last = math.max(low, page.above and page.above + 1 or 0), math.min(high, page.below or math.huge)
local limit, total, from = page.limit or math.huge, 0, 0
local step = page.roles and 200 or math.min(limit, 500)
if page.roles and page.total then first, last = low, high end
while step > 0 do
  local some
  if page.newest then
    some = redis.call('ZRANGE', key, bound(last), whole(first), 'BYSCORE', 'REV', 'LIMIT', from, step)
  else
    some = redis.call('ZRANGE', key, whole(first), bound(last), 'BYSCORE', 'LIMIT', from, step)
  end
  for _, facts in ipairs(some) do
    local seq = string.match(facts, '^%d+')
    local role = page.roles and string.match(redis.call('HGET', KEYS[4], seq) or '', '^[-!]?{"at":%d+,"number":%d+,"type":"(%a+)"')
    if not page.roles or (role and string.find(page.roles, ',' .. role .. ',', 1, true)) then
      total = total + 1
      local is_on_page = tonumber(seq) > (page.above or -1) and tonumber(seq) < (page.below or math.huge)
      if #shown < limit and is_on_page then shown[#shown + 1] = facts end
    end
  end
  from = from + #some
  if #some < step or (#shown >= limit and not (page.roles and page.total)) then break end
end
if page.roles and page.total then found.total = total end

found.shown = shown
local bodies, vectors = {}, {}
for start = 1, #shown, 1000 do
  local seqs = {}
  for at = start, math.min(start + 999, #shown) do seqs[#seqs + 1] = string.match(shown[at], '^%d+') end
  for _, body in ipairs(redis.call('HMGET', KEYS[4], unpack(seqs))) do
    bodies[#bodies + 1] = page.times and body and tonumber(string.match(body, '^[-!]?{"at":(%d+)')) or body
  end
end
for at, facts in ipairs(page.vectors and shown or {}) do
  vectors[at] = {}
  for chunk, key in ipairs(vector_keys(facts)) do vectors[at][chunk] = redis.call('HGETALL', key) end
end
return {cjson.encode(found), bodies, vectors}
