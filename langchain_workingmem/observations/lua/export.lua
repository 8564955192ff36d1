-- Reads what observations cover of a thread, and its log, for a copy or an export.
-- ARGV  resource or ''
-- Reply scope ('': nothing is covered), version of the log, present manifest, then lists: number, value, ... of its observations and of
--       those that they stand for; id, seq, ... of the covered messages, on all branches; WMOWNER.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
local scope, version, covered, present =
  unpack(redis.call('HMGET', KEYS[12], 'scope', 'version', 'covered', 'present'))
if not scope or redis.call('EXISTS', KEYS[1]) == 0 then return {''} end
local numbers, observations = {}, {}
local function add(found)
  for _, range in ipairs(found) do
    for number = range[1], range[2] do numbers[#numbers + 1] = number end
  end
end
add(select(2, ranges_in(present)))
load_lines(numbers)
local at = 1
while at <= #numbers do -- with the finer lines that these stand for
  local line = line_of(numbers[at])
  if line then
    observations[#observations + 1] = as_integer(numbers[at])
    observations[#observations + 1] = line.value
    add(parse_ranges(line.parts))
  end
  at = at + 1
end
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
