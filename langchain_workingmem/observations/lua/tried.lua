-- Goes behind coverage.lua, before the scripts that know about which messages the observer gave nothing usable.
-- `tried` of the log: <first>-<last>/<failed calls>/<how often it was halved>;... : disjoint ranges of sequence numbers.

local function parse_tried()
  local entries = {}
  for first, last, failures, depth in
    string.gmatch(redis.call('HGET', KEYS[12], 'tried') or '', '(%d+)%-(%d+)/(%d+)/(%d+)') do
    entries[#entries + 1] = {tonumber(first), tonumber(last), tonumber(failures), tonumber(depth)}
  end
  return entries
end

-- Writes those of the entries in which a message is still to be covered.
local function write_tried(entries)
  local covered, parts = add_ranges(shown_ranges(KEYS[12]), (ahead.ranges())), {}
  table.sort(entries, function(a, b) return a[1] < b[1] end)
  for _, entry in ipairs(entries) do
    local ranked = redis.call('ZRANGE', KEYS[2], as_integer(entry[1]), as_integer(entry[2]), 'BYSCORE', 'WITHSCORES')
    local is_open = false
    for at = 2, #ranked, 2 do is_open = is_open or not range_with(covered, tonumber(ranked[at])) end
    if is_open then
      parts[#parts + 1] = string.format('%.0f-%.0f/%d/%d', unpack(entry))
    end
  end
  if #parts == 0 then
    redis.call('HDEL', KEYS[12], 'tried')
  else
    redis.call('HSET', KEYS[12], 'tried', table.concat(parts, ';'))
    redis.call('HSET', KEYS[1], 'covered', 1) -- whoever deletes the thread also deletes this
  end
end
