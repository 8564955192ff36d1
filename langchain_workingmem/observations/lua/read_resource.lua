-- Reads the log of a resource.
-- KEYS[1] its tombstone (STRING)  KEYS[2] its log (HASH)
-- ARGV  a thread as a tag ('': no thread), version and next number that the caller knows
-- Reply what read_log returns; the last batch that the thread has published, and the epoch of what was forgotten of it; what is
--       hidden on the branches of threads: <tag>:<ranges>;...; usage: name, value, ...; tokens that wait in all threads; without
--       a thread time (us) and origin of the present revision.
local fields = redis.call('HMGET', KEYS[2], 'batch:' .. ARGV[1], 'epoch:' .. ARGV[1], 'hidden', 'waiting', 'expires')
local hidden = fields[3] or ''
if fields[5] then -- what a thread has said that has expired is hidden whole
  local time, parts = redis.call('TIME'), {hidden ~= '' and hidden or nil}
  for tag, at in string.gmatch(fields[5], '([^:;]+):(%d+):%d+;') do
    if tonumber(at) <= time[1] * 1000 + math.floor(time[2] / 1000) then parts[#parts + 1] = tag .. ':' .. write_ranges(ALL) end
  end
  hidden = table.concat(parts, ';')
end
return {read_log(KEYS[2], ARGV[2], tonumber(ARGV[3])), fields[1] or '0', fields[2] or '0', hidden, usage_of(KEYS[2]),
  fields[4] or '0', ARGV[1] == '' and made_of(KEYS[2]) or {}}
