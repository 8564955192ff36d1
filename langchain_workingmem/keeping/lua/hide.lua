#!lua flags=allow-oom
-- Notes which messages that values cite are on other branches, and where messages are that were not stored when they were cited.
-- ARGV  thread; the same as a tag; number of the changes of its branches that the caller has seen; sequence numbers that are on
--       other branches, as ranges; then id and sequence number of messages that values cite without one
if redis.call('EXISTS', values_key) == 0 then return 0 end
local thread, tag, seen, hidden = unpack(ARGV, 1, 4)
local seqs = {}
for at = 5, #ARGV, 2 do seqs[ARGV[at]] = ARGV[at + 1] end
if #ARGV > 4 then
  each_citing(function(field, claim)
    local is_found = false
    for _, source in ipairs(claim[1]) do
      if source[1] == thread and source[3] == '-1' and seqs[source[2]] then source[3], is_found = seqs[source[2]], true end
    end
    if is_found then redis.call('HSET', values_key, field, cjson.encode(claim)) end
  end)
end
local last, before = string.match(redis.call('HGET', values_key, 'h:' .. tag) or '0/', '^(%d+)/(.*)$')
if tonumber(seen) >= tonumber(last) then
  if hidden ~= before then drop_document() end
  redis.call('HSET', values_key, 'h:' .. tag, seen .. '/' .. hidden)
end
raise_version()
return 1
