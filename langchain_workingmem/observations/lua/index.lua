-- Writes documents of recall of the observations of a thread.
-- ARGV  resource or '', digest of the embedding settings, then for each document sequence numbers (12,13), <id>|<sources>|<JSON>,
--       number of fields and values, those
-- A new document takes the place of one of the same sources and text. It is left out if a source is not covered on the current
-- branch.
-- Reply number of new documents; WMOWNER.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
check_key_types()
local new, shown, digest, argument = {}, shown_ranges(KEYS[12]), ARGV[2], 3
while argument <= #ARGV do
  local seqs, value, first = ARGV[argument], ARGV[argument + 1], argument + 3
  argument = first + ARGV[argument + 2]
  if #subtract_ranges(join_ranges(parse_ranges(seqs)), shown) == 0 then
    drop_document(seqs, value)
    new[#new + 1] = {seqs, value, digest, first, argument - 1}
  end
end
for _, document in ipairs(new) do write_document(unpack(document)) end
return #new
