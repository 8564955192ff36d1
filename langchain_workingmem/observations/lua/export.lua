-- Reads what observations cover of a thread, and its log, for a copy or an export; in parts, because all of it may be much.
-- ARGV  user or '', version of the log as the caller has read it ('': it begins), numbers of lines, first and last of the sequence
--       numbers of messages
-- Reply scope ('': nothing is covered, or the log has changed); at the beginning version, present manifest and what is covered; then
--       lists of number, value, ... of the lines, and of id, seq, ... of the messages, on all branches; WMOWNER.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
local scope, version, covered, present = unpack(redis.call('HMGET', KEYS[12], 'scope', 'version', 'covered', 'present'))
if not scope or redis.call('EXISTS', KEYS[1]) == 0 then return {''} end
if ARGV[2] == '' then return {scope, version or '0', present or '', covered or ''} end
if version ~= ARGV[2] then return {''} end
local numbers, observations, messages = {}, {}, {}
for _, range in ipairs(parse_ranges(ARGV[3])) do
  for number = range[1], range[2] do numbers[#numbers + 1] = number end
end
load_lines(numbers)
for _, number in ipairs(numbers) do
  if lines[number] then
    observations[#observations + 1] = as_integer(number)
    observations[#observations + 1] = lines[number].value
  end
end
for _, key in ipairs({KEYS[2], KEYS[7]}) do
  local ranked = redis.call('ZRANGE', key, ARGV[4], ARGV[5], 'BYSCORE', 'WITHSCORES')
  for at = 1, #ranked, 2 do
    if not string.find(ranked[at + 1], '.', 1, true) then -- else it is an older version
      messages[#messages + 1] = ranked[at]
      messages[#messages + 1] = ranked[at + 1]
    end
  end
end
return {scope, observations, messages}
