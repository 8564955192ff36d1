-- Reads hits of one thread, and what was said around them: tool traffic does not count in a window, and is left out.
-- ARGV  user or '', messages before, messages after, then of each hit sequence number and tokens
-- Reply title or ''; of each hit whose vectors are still valid the sequence number and how many messages before it were said; of each
--       message around a hit and of each hit the rank among what was said ('': it is tool traffic, or was refused), seq, id and value;
--       empty when the thread is gone or belongs to another user
local thread = redis.call('HMGET', KEYS[1], 'user', 'title')
if not thread[1] or (ARGV[1] ~= '' and thread[1] ~= ARGV[1]) then return {} end
local before, after = tonumber(ARGV[2]), tonumber(ARGV[3])
local found, values = {}, {} -- `values` by sequence number: id and value of what was read
local reply = {thread[2] or '', found}
local function add(rank, seq, id, value)
  local at = #reply
  reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = rank, seq, id, value
end

local ranks, wanted = {}, {}
for argument = 4, #ARGV, 2 do
  local rank = redis.call('ZCOUNT', KEYS[5], '-inf', '(' .. ARGV[argument])
  ranks[argument] = rank
  wanted[#wanted + 1] = {math.max(0, rank - before), rank + after}
end
table.sort(wanted, function(a, b) return a[1] < b[1] end)
local ranges = {}
for _, range in ipairs(wanted) do
  local last = ranges[#ranges]
  if last and range[1] <= last[2] + 1 then
    last[2] = math.max(last[2], range[2])
  else
    ranges[#ranges + 1] = range
  end
end
for _, range in ipairs(ranges) do
  for start = range[1], range[2], 500 do -- `unpack` is limited
    local seqs, ids = {}, {}
    for at, member in ipairs(redis.call('ZRANGE', KEYS[5], start, math.min(start + 499, range[2]))) do
      seqs[at] = string.match(member, '^%d+')
    end
    if #seqs == 0 then break end
    if seqs[#seqs] - seqs[1] + 1 == #seqs then -- nothing lies between, so that one command is enough
      ids = redis.call('ZRANGE', KEYS[2], seqs[1], seqs[#seqs], 'BYSCORE')
    else
      for at, seq in ipairs(seqs) do ids[at] = redis.call('ZRANGE', KEYS[2], seq, seq, 'BYSCORE')[1] end
    end
    for at, value in ipairs(redis.call('HMGET', KEYS[3], unpack(ids))) do
      values[seqs[at]] = {ids[at], value}
      add(start + at - 1, seqs[at], ids[at], value)
    end
  end
end

for argument = 4, #ARGV, 2 do -- what was said is read by now
  local seq, tokens = ARGV[argument], ARGV[argument + 1]
  local known = values[seq]
  local id = known and known[1] or redis.call('ZRANGE', KEYS[2], seq, seq, 'BYSCORE')[1]
  if id then
    local value = known and known[2] or redis.call('HGET', KEYS[3], id)
    local _, _, size, chunks = string.match(value, HEADER)
    -- the vector may belong to an expired thread of the same id
    if string.match(size, '^%d+') == tokens and chunks ~= '0' then
      if not known then add('', seq, id, value) end
      found[#found + 1] = seq
      found[#found + 1] = ranks[argument]
    end
  end
end
return reply
