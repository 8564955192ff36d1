-- Reads the messages around the hits of one thread.
-- KEYS  thread (HASH), order (ZSET), messages (HASH)
-- ARGV  resource or '', messages before, messages after, then sequence number and tokens of each hit
-- Reply title or '', the sequence numbers of hits whose vectors are still valid, then rank, seq, id and value of each
--       message in a window, in order; empty when the thread is gone or belongs to another resource
local thread = redis.call('HMGET', KEYS[1], 'resource', 'title')
if not thread[1] or (ARGV[1] ~= '' and thread[1] ~= ARGV[1]) then return {} end
local before, after = tonumber(ARGV[2]), tonumber(ARGV[3])
local wanted, found = {}, {}
for argument = 4, #ARGV, 2 do
  local seq = ARGV[argument]
  local id = redis.call('ZRANGE', KEYS[2], seq, seq, 'BYSCORE')[1]
  if id then
    local _, _, size, chunks = string.match(redis.call('HGET', KEYS[3], id), HEADER)
    -- the vector may belong to an expired thread of the same id
    if string.match(size, '^%d+') == ARGV[argument + 1] and chunks ~= '0' then
      local rank = redis.call('ZRANK', KEYS[2], id)
      wanted[#wanted + 1] = {math.max(0, rank - before), rank + after}
      found[#found + 1] = seq
    end
  end
end
table.sort(wanted, function(a, b) return a[1] < b[1] end)
local reply, reached = {thread[2] or '', found}, -1
for _, range in ipairs(wanted) do
  local first = math.max(range[1], reached + 1)
  if first <= range[2] then
    for start = first, range[2], 500 do -- `unpack` is limited
      local ranked = redis.call('ZRANGE', KEYS[2], start, math.min(start + 499, range[2]), 'WITHSCORES')
      local ids = {}
      for at = 1, #ranked, 2 do ids[#ids + 1] = ranked[at] end
      if #ids == 0 then break end
      for at, value in ipairs(redis.call('HMGET', KEYS[3], unpack(ids))) do
        reply[#reply + 1] = start + at - 1
        reply[#reply + 1] = ranked[2 * at]
        reply[#reply + 1] = ids[at]
        reply[#reply + 1] = value
      end
    end
    reached = range[2]
  end
end
return reply
