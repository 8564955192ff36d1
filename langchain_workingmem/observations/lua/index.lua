-- Changes which documents of recall the observations of a thread have.
-- ARGV  resource or '', number of observations whose documents go, then sequence numbers (12,13) and text of each ('': all
--       documents whose sources are among them); digest of the embedding settings; for each new document sequence numbers,
--       <id>|<sources>|<JSON>, text, number of fields and values, those
-- A new document takes the place of one of the same sources and text. It is left out if a source is not covered on the current
-- branch.
-- Reply number of new documents; WMOWNER.
local refusal = wrong_owner(ARGV[1])
if refusal then return refusal end
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
check_key_types()
local exact, wide, argument = {}, {}, 3
for _ = 1, tonumber(ARGV[2]) do
  local seqs, text = ARGV[argument], ARGV[argument + 1]
  if text == '' then
    local set = {}
    for seq in string.gmatch(seqs, '%d+') do set[tonumber(seq)] = true end
    wide[#wide + 1] = set
  else
    exact[seqs .. '|' .. text] = true
  end
  argument = argument + 2
end
local digest, shown, new = ARGV[argument], shown_ranges(), {}
argument = argument + 1
while argument <= #ARGV do
  local seqs, value, text, first = ARGV[argument], ARGV[argument + 1], ARGV[argument + 2], argument + 4
  local is_shown = true
  for seq in string.gmatch(seqs, '%d+') do is_shown = is_shown and range_with(shown, tonumber(seq)) end
  argument = first + ARGV[argument + 3]
  if is_shown then
    exact[seqs .. '|' .. text] = true
    new[#new + 1] = {seqs, value, digest, first, argument - 1}
  end
end
drop_documents(function(sources, key)
  if exact[table.concat(sources, ',') .. '|' .. (redis.call('HGET', key, 'text') or '')] then return true end
  for _, set in ipairs(wide) do
    local is_in = true
    for _, seq in ipairs(sources) do is_in = is_in and set[seq] end
    if is_in then return true end
  end
end)
for _, document in ipairs(new) do write_document(unpack(document)) end
return #new
