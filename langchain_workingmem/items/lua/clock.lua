-- Goes before the scripts that write the time of an item.
local function as_integer(number) return string.format('%.0f', number) end
-- Writes an expiry in ms: Search keeps it as nanoseconds in 64 bits.
local function as_expiry(ms) return as_integer(math.min(ms, 9223372036854)) end
-- Returns the time in microseconds.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
