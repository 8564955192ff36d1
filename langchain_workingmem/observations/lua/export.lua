-- Reads what observations cover of a thread, and its log, for a copy or an export.
-- ARGV  resource or ''
-- Reply scope ('': nothing is covered), version of the log, ranges that are covered, present manifest, then lists: number, value, ... of its
--       observations; id, seq, ... of the covered messages, on all branches; WMOWNER.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
local scope, version, covered, present =
  unpack(redis.call('HMGET', KEYS[12], 'scope', 'version', 'covered', 'present'))
if not scope or redis.call('EXISTS', KEYS[1]) == 0 then return {''} end
local log, observations = read_log(KEYS[12], '', 0), {}
for at = 4, #log do observations[at - 3] = log[at] end
local ranges, messages = parse_ranges(covered), {}
for _, key in ipairs(#ranges > 0 and {KEYS[2], KEYS[7]} or {}) do
  local ranked = redis.call('ZRANGE', key, as_integer(ranges[1][1]), as_integer(ranges[#ranges][2]), 'BYSCORE', 'WITHSCORES')
  for at = 1, #ranked, 2 do
    local seq = tonumber(ranked[at + 1])
    if seq == math.floor(seq) and range_with(ranges, seq) then
      messages[#messages + 1] = ranked[at]
      messages[#messages + 1] = as_integer(seq)
    end
  end
end
return {scope, version or '0', present or '', observations, messages}
