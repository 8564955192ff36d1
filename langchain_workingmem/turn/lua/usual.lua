-- The usual turn: one question that the thread does not know, and options that show all kinds of messages. It says what turn.lua
-- says, which has the arguments and the reply, and comes before the functions of the other turns are made (70 us instead of 130).
local function usual_turn()
  local last, step = tonumber(ARGV[3]), tonumber(ARGV[4])
  local shows_all = ARGV[5] == '0' and ARGV[6] == '' and ARGV[7] == '' and ARGV[8] == '0'
  if next(hooks) or #ARGV ~= 10 or not last or last == 0 or not shows_all or string.sub(ARGV[10], 1, 1) ~= 'q' then return end
  local thread = redis.call('HMGET', KEYS[1], 'user', 'refused', 'vectors_expire_first', 'next_seq')
  if not thread[1] or (ARGV[1] ~= '' and thread[1] ~= ARGV[1]) or thread[2] or thread[3] then return end
  if redis.call('EXISTS', KEYS[7], KEYS[8]) > 0 or redis.call('ZSCORE', KEYS[2], ARGV[9]) then return end
  local begins = '-inf'
  local skipped = math.floor((redis.call('ZCARD', KEYS[5]) - last) / step) * step
  if skipped > 0 then -- the history begins with a question: with the one that an answer at its edge belongs to
    local edge = redis.call('ZRANGE', KEYS[5], skipped - 1, skipped)
    local at = string.match(edge[2], '^(%d+):q') or string.match(edge[1], '^(%d+):q')
    if not at then return end
    begins = tonumber(at)
  end
  local ranked, rows = redis.call('ZRANGE', KEYS[2], begins, '+inf', 'BYSCORE', 'WITHSCORES'), {}
  for start = 1, #ranked, 1000 do -- `unpack` is limited
    local ids = {}
    for at = start, math.min(start + 999, #ranked), 2 do ids[#ids + 1] = ranked[at] end
    for at, value in ipairs(redis.call('HMGET', KEYS[3], unpack(ids))) do
      local row = #rows
      rows[row + 1], rows[row + 2], rows[row + 3] = ids[at], ranked[start + 2 * at - 1], value
    end
  end
  return {0, 0, {}, {}, {}, {}, {''}, {-1}, {-1}, {0}, {0}, rows, {}, begins, 0, thread[4]}
end
local usual = usual_turn()
if usual then return usual end
