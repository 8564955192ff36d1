-- Reads the log of a thread with all that is known about it.
-- ARGV  user or '', version and next number that the caller knows, sequence number at which it begins to count
-- Reply what read_log returns; ranges that are covered on the current branch; tokens that are not covered; usage: name, value, ...;
--       time (us) and origin of the present revision; where the caller goes on counting, after MOST messages that are not covered
--       ('': nowhere); WMOWNER.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
local MOST = 2000
local pending, count, next_one = 0, 0, ''
each_raw(function(_, seq, _, tokens)
  pending, count = pending + tokens, count + 1
  if count == MOST then next_one = as_integer(seq + 1) end
  return count == MOST
end, {{0, ARGV[4] - 1}})
local log, shown = read_log(KEYS[12], ARGV[2], tonumber(ARGV[3])), write_ranges(shown_ranges(KEYS[12]))
return {log, shown, pending, usage_of(KEYS[12]), made_of(KEYS[12]), next_one}
