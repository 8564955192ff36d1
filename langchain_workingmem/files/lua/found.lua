-- Goes behind tree.lua where recall finds the files of an owner. A plain script answers WMFOUND, and has written nothing.
-- What recall finds of a file: `<prefix>:file-vector:{owner}:<SHA-1 of the path>:<chunk>` (HASH), and in `<prefix>:file-vectors:{owner}`
-- (ZSET) the number of its chunks; -1, less the chunks that are stored, while it waits for others.
local function found_keys()
  local head, owner = string.match(paths_key, '^(.*):files:paths:r:({.*})$')
  return head .. ':file-vectors:' .. owner, head .. ':file-vector:' .. owner .. ':'
end

redis.call('ZCARD', (found_keys())) -- fails before the first write if another program has stored another type there

local function chunks_of(score)
  score = tonumber(score or 0)
  return score < 0 and -1 - score or score
end

-- Takes away the chunks of a file from number `from` on.
local function drop_chunks(prefix, path, from, chunks)
  local start = prefix .. redis.sha1hex(path) .. ':'
  for at = from, chunks - 1 do redis.call('UNLINK', start .. as_integer(at)) end
end

-- Takes a file that changes out of what recall finds; with `waits` until it is embedded again.
forget_found = function(path, waits)
  local vectors_key, prefix = found_keys()
  drop_chunks(prefix, path, 0, chunks_of(redis.call('ZSCORE', vectors_key, path)))
  if waits then redis.call('ZADD', vectors_key, -1, path) else redis.call('ZREM', vectors_key, path) end
end

-- Lets it expire with the files, if these expire earlier than it does now.
shorten_found = function(expiry)
  local vectors_key, prefix = found_keys()
  local ends = redis.call('HGET', notes_key, 'recall_until')
  if ends and tonumber(ends) <= expiry or redis.call('EXISTS', vectors_key) == 0 then return end
  local known = redis.call('ZRANGE', vectors_key, 0, -1, 'WITHSCORES')
  for at = 1, #known, 2 do
    local start = prefix .. redis.sha1hex(known[at]) .. ':'
    for chunk = 0, chunks_of(known[at + 1]) - 1 do redis.call('PEXPIREAT', start .. as_integer(chunk), as_integer(expiry)) end
  end
  redis.call('PEXPIREAT', vectors_key, as_integer(expiry))
  redis.call('HSET', notes_key, 'recall_until', as_integer(expiry))
end
