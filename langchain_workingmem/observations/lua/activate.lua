-- Shows what was read ahead, because a run of the observer has come to its end.
-- ARGV  user or '', tokens of a present turn up to which its steps stay as they are
-- Reply coverage_version, what renew_ttl returns; WMOWNER, WMNOTHREAD.
local refusal = log_refusal(ARGV[1])
if refusal then return refusal end
check_key_types()
ahead.activate(tonumber(ARGV[2]))
return {coverage_version(), renew_ttl()}
