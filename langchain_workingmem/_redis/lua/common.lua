-- Goes before every script over a thread.
-- KEYS  1 thread (HASH)  2 order (ZSET: facts of the current messages, by seq)  3 superseded (ZSET: of the others)
--       4 messages (HASH: seq -> body)  5 ids (HASH)  6 media (HASH: <seq>:<n> -> bytes)
--       7 dropped (ZSET: facts whose vectors have still to be deleted)  8 prefix of the vectors  9 derived rows (HASH)
--       10 working memory (HASH)  11 its revisions (STREAM)
-- ARGV  1 a JSON object, `head`; what else there is, the script says
-- Facts of a message: <seq>:<digest>:<tokens>:<total_tokens>:<writer>:<settings>/<chunks>/<length>/<author>:<id>
-- `ids` has the seqs of an id, the one that counts first; "=<id>" for an alias; "x<digest>" for a deleted message.
-- A body is JSON; a superseded one has a - in front, and one that a provider has refused a !.
-- A reply is a JSON object, and values behind it. {refused = ...} means that nothing was done.
local STRIDE = 4096 -- what was said has multiples of it as seqs, tool traffic the numbers between
local head = cjson.decode(ARGV[1])
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2] -- us

-- Writes a whole number without an exponent; Lua would round it.
local function whole(number) return string.format('%d', number) end

local function add(list, more)
  for _, value in ipairs(more) do list[#list + 1] = value end
end

-- Returns why `user` ('': any) may not use the thread: it has another owner, owns itself, or Redis has evicted a part.
local function refusal(user, owner)
  if owner and (user == '' or owner == user) then return nil end
  if owner then return string.find(KEYS[1], '{' .. owner .. '}', 1, true) and 'self' or 'owner' end
  return redis.call('EXISTS', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[10]) > 0 and 'damaged' or nil
end

-- Returns the values of fields of a hash, of which there may be many.
local function values_of(key, fields)
  local values = {}
  for first = 1, #fields, 1000 do
    add(values, redis.call('HMGET', key, unpack(fields, first, math.min(first + 999, #fields))))
  end
  return values
end

-- Returns the seqs of an id from its value in `ids`, the one that counts first; and the digest of a deleted message.
local function locate(value)
  if value and string.sub(value, 1, 1) == '=' then value = redis.call('HGET', KEYS[5], string.sub(value, 2)) end
  if not value then return {} end
  if string.sub(value, 1, 1) == 'x' then return {}, string.sub(value, 2) end
  local seqs = {}
  for seq in string.gmatch(value, '%d+') do seqs[#seqs + 1] = tonumber(seq) end
  return seqs
end

-- Returns the keys of the vectors that facts name.
local function vector_keys(facts)
  local keys, seq, chunks, length, author =
    {}, string.match(facts, '^(%d+):[^:]*:%d+:%d+:[^:]*:%x*/(%d+)/(%d+)/([^:]*):')
  for chunk = 0, (chunks or 0) - 1 do keys[#keys + 1] = KEYS[8] .. table.concat({seq, chunk, length, author}, ':') end
  return keys
end

-- Returns the time in `ms` from now, in ms; at most what Search can keep, as nanoseconds in 64 bits.
local function expiry(ms) return whole(math.min(now / 1000 + ms, 9223372036854)) end

-- Lets the keys of the thread live for `ttl` ms, without it for ever. Returns whether its vectors, which live twice as
-- long, have to be renewed behind the write.
local function expire(ttl)
  local at = ttl and expiry(ttl)
  for key = 1, ttl and #KEYS or 0 do
    if key ~= 8 then redis.call('PEXPIREAT', KEYS[key], at) end
  end
  return ttl and tonumber(redis.call('HGET', KEYS[1], 'vectors_until') or 0) < now / 1000 + 1.5 * ttl or nil
end
