-- Compares the media of a thread with the references to them; reads only.
-- ARGV  number of messages at most
-- Reply 1, or 0 if the thread has media and more messages; numbers of media, of references to lost ones, of media without a message, and
--       of those that are counted wrongly (said.lua: `refer`)
local messages = redis.call('ZCARD', KEYS[2]) + redis.call('ZCARD', KEYS[7])
if redis.call('HLEN', KEYS[3]) == messages then return {1, 0, 0, 0, 0} end
if messages > tonumber(ARGV[1]) then return {0, 0, 0, 0, 0} end
local kept, counted, found, ids = {}, {}, {}, {}
for _, name in ipairs(redis.call('HKEYS', KEYS[3])) do
  local sign, digest = string.match(name, '^%z(#?)(%x+)$')
  if not digest then
    ids[#ids + 1] = name
  elseif sign == '#' then
    counted[digest] = tonumber(redis.call('HGET', KEYS[3], name))
  else
    kept[digest] = true
  end
end
for _, id in ipairs(ids) do
  local value = redis.call('HGET', KEYS[3], id)
  for digest in string.gmatch(string.sub(value, -2) == ']}' and string.match(value, '.*,"media":%[(.*)$') or '', '"(%x+)') do
    found[digest] = (found[digest] or 0) + 1
  end
end
local media, lost, left, wrong = 0, 0, 0, 0
for digest, count in pairs(found) do
  if not kept[digest] then lost = lost + count elseif counted[digest] ~= count then wrong = wrong + 1 end
end
for digest in pairs(kept) do
  media = media + 1
  if not found[digest] then left = left + 1 end
end
for digest in pairs(counted) do
  if not kept[digest] and not found[digest] then wrong = wrong + 1 end
end
return {1, media, lost, left, wrong}
