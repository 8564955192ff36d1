-- Lists the documents of recall of the observations of a thread, for a process that makes those that are missing.
-- Reply 1 if the thread has a log; then for each document digest of the embedding
--       settings, sequence numbers of its sources, <id>|<sources>|<JSON> ('' if Redis evicted it)
local has_log = redis.call('EXISTS', KEYS[1]) * redis.call('HEXISTS', KEYS[12], 'scope')
redis.call('HDEL', KEYS[12], 'unindexed')
local reply = {has_log}
local fields = redis.call('HEXISTS', KEYS[12], 'documents') == 1 and redis.call('HGETALL', KEYS[12]) or {}
for at = 1, #fields, 2 do
  local first = string.match(fields[at], '^d:(%d+)$')
  for suffix, digest, seqs in string.gmatch(first and fields[at + 1] or '', '([^/;]+)/([^/]*)/([%d,]+)') do
    reply[#reply + 1] = digest
    reply[#reply + 1] = seqs
    reply[#reply + 1] = redis.call('HGET', KEYS[4] .. first .. ':' .. suffix, 'observation') or ''
  end
end
return reply
