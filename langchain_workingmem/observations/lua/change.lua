-- Replaces the beginning of a log's manifest, or all of it, unless it has changed since the caller read it.
-- ARGV  user or '', origin, 1 if all of the manifest is replaced, the manifest (or its beginning) that the caller read, the new
--       one, in which @ stands for the numbers of new observations, number of new observations, then <id or nothing>|<sources>|<JSON> of each; pairs of a usage counter and a number
-- Reply 1, or 0 if the manifest has changed; what renew_ttl returns; WMOWNER, WMNOTHREAD.
local key, refusal = KEYS[12], log_refusal(ARGV[1])
if refusal then return refusal end
check_key_types()
local expected, manifest, count = ARGV[4], ARGV[5], tonumber(ARGV[6])
local present = redis.call('HGET', key, 'present') or ''
local rest = string.sub(present, #expected + 1)
add_usage(key, 7 + count, #ARGV)
if string.sub(present, 1, #expected) ~= expected or (ARGV[3] == '1' and rest ~= '')
  or (rest ~= '' and expected ~= '' and string.sub(rest, 1, 1) ~= ';') then
  return {0, 0}
end
if count > 0 then
  local number = redis.call('HINCRBY', key, 'next', count) - count + 1
  for at = 0, count - 1 do
    local id, value = string.match(ARGV[7 + at], '^([^|]*)(|.*)$')
    local name = as_integer(number + at)
    add_line(name, (id == '' and name or id) .. value)
  end
  manifest = string.gsub(manifest, '@', write_ranges({{number, number + count - 1}}))
end
if ARGV[2] == 'clear' then ahead.drop() end
if manifest == '' then rest = string.gsub(rest, '^;', '') end
write_revision(key, manifest .. rest, ARGV[2])
if ARGV[2] == 'reflect' then redis.call('HDEL', key, 'reflector_streak', 'reflector_pause_until') end
cover(manifest .. rest)
redis.call('HDEL', KEYS[1], 'pending')
refresh_hidden()
return {1, renew_ttl()}
