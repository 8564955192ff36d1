-- Lists the documents of recall of the observations of a thread, for a process that makes those that are missing.
-- Reply owner ('' without a thread), scope of the log ('' without one); then for each document digest of the embedding
--       settings, sequence numbers of its sources, <id>|<sources>|<JSON> ('' if Redis evicted it)
local owner, scope = redis.call('HGET', KEYS[1], 'resource'), redis.call('HGET', KEYS[10], 'scope')
redis.call('HDEL', KEYS[10], 'unindexed')
local reply = {owner or '', owner and scope or ''}
local fields = redis.call('HEXISTS', KEYS[10], 'documents') == 1 and redis.call('HGETALL', KEYS[10]) or {}
for at = 1, #fields, 2 do
  local first = string.match(fields[at], '^d:(%d+)$')
  for suffix, digest, seqs in string.gmatch(first and fields[at + 1] or '', '([^/;]+)/([^/]*)/([%d,]+)') do
    reply[#reply + 1] = digest
    reply[#reply + 1] = seqs
    reply[#reply + 1] = redis.call('HGET', KEYS[4] .. first .. ':' .. suffix, 'observation') or ''
  end
end
return reply
