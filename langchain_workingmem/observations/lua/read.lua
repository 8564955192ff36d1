-- Reads the log of a thread with all that is known about it.
-- ARGV  resource or '', version and next number that the caller knows
-- Reply what read_log returns; ranges that are covered on the current branch; tokens that are not covered; usage: name, value, ...;
--       time (us) and origin of the present revision; WMOWNER.
-- The cost follows the number of messages that are not covered.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
local pending = 0
each_raw(function(_, _, _, tokens) pending = pending + tokens end)
local log, shown = read_log(KEYS[12], ARGV[2], tonumber(ARGV[3])), write_ranges(shown_ranges(KEYS[12]))
return {log, shown, pending, usage_of(KEYS[12]), made_of(KEYS[12])}
