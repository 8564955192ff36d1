-- Reads the logs of a user's threads, those with the newest lines first. In a cluster their keys are in other slots than the index:
-- then the reply names the threads only, and read_part.lua reads each of them.
-- KEYS[1] tombstone of the user (STRING)  KEYS[2] what waits for the observer (HASH)  KEYS[3] index: thread as a tag -> time (ZSET)
-- ARGV  key prefix, user as a tag, a thread as a tag that is left out ('': none), number of threads at most, what the
--       caller knows: <tag>/<version of the log>/<next number>/<what is hidden>/<digest of the title>;...
-- Reply usage: name, value, ...; tokens that wait in all threads; 1 if the threads are only named; their tags; of each what read_part
--       returns
local known, tags, parts, is_spread = {}, redis.call('ZRANGE', KEYS[3], 0, ARGV[4] - 1, 'REV'), {}, 0
for tag, version, next_number, hidden, digest in string.gmatch(ARGV[5], '([^/;]+)/([^/;]+)/(%d+)/([^/;]*)/(%x*);') do
  known[tag] = {version, tonumber(next_number), hidden, digest}
end
for _, tag in ipairs(tags) do
  if tag ~= ARGV[3] and is_spread == 0 then
    local version, next_number, hidden, digest = unpack(known[tag] or {'0', 0, '', ''})
    local part = read_part(tag, ARGV[1] .. ':thread:{' .. tag .. '}', ARGV[1] .. ':observations:t:{' .. tag .. '}', ARGV[2], version,
      next_number, hidden, digest)
    if part then parts[#parts + 1] = part else is_spread = 1 end
  end
end
return {usage_of(KEYS[2]), redis.call('HGET', KEYS[2], 'waiting') or '0', is_spread, tags, is_spread == 0 and parts or {}}
