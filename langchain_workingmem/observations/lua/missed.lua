-- Notes that calls of the model about some messages gave nothing usable; after too many, these are read in two halves.
-- ARGV  user or '', failed calls about the range in all (0: the model failed with everything, so all ranges begin anew), first and
--       last sequence number of the range, calls after which it is halved, where its second half begins ('': it is one group)
-- Reply what renew_ttl returns; WMOWNER, WMNOTHREAD.
local refusal = log_refusal(ARGV[1])
if refusal then return refusal end
check_key_types()
local failures, entries = tonumber(ARGV[2]), parse_tried()
if failures == 0 then
  for _, entry in ipairs(entries) do entry[3] = 0 end
else
  local first, last, middle, depth, others = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[6]), 0, {}
  for _, entry in ipairs(entries) do
    if entry[2] < first or entry[1] > last then
      others[#others + 1] = entry
    else -- some of its messages are gone, or it is read in parts
      depth = math.max(depth, entry[4])
      if entry[1] < first then others[#others + 1] = {entry[1], first - 1, entry[3], entry[4]} end
      if entry[2] > last then others[#others + 1] = {last + 1, entry[2], entry[3], entry[4]} end
    end
  end
  entries = others
  if middle and failures >= tonumber(ARGV[5]) then
    entries[#entries + 1] = {first, middle - 1, 0, depth + 1}
    entries[#entries + 1] = {middle, last, 0, depth + 1}
  else
    entries[#entries + 1] = {first, last, failures, depth}
  end
end
write_tried(entries)
return renew_ttl()
