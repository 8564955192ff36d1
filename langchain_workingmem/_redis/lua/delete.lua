#!lua flags=allow-oom
-- Deletes messages, all of a thread, or vectors that are left of them.
-- ARGV  1 {user, what, ids, most, version, noted}
--   what   'messages' (ids; their ids stay as deleted), 'all' messages, 'after' (supersedes what stands behind the id `after`), 'thread',
--          'sweep' (vectors), 'undo': of a write that met the deletion of its user; then the thread goes if it is new and has not changed
--          since (`version`), else the messages
--   noted  the user knows that a thread with rows goes: without it {rows = owner}, and nothing is done
-- Reply {deleted, vectors, memories, revisions, is_left}; {} if there is no thread
local owner, left = unpack(redis.call('HMGET', KEYS[1], 'user', 'ttl'))
local no = refusal(head.user, owner)
if no and not (no == 'damaged' and head.what == 'thread' and head.user == '') then return {cjson.encode({refused = no})} end
if head.what == 'undo' then head.noted, head.what = true, head.version == version and 'thread' or 'messages' end
if not owner and no ~= 'damaged' or head.what == 'sweep' then
  local gone, is_left = sweep(head.most)
  return {cjson.encode({vectors = gone, is_left = is_left})}
end
if head.what == 'thread' and not head.noted and owner and redis.call('EXISTS', KEYS[9]) == 1 then return {cjson.encode({rows = owner})} end
local deleted, memories, revisions = 0, 0, 0
if head.what == 'messages' then
  for _, id in ipairs(head.ids) do
    local value = redis.call('HGET', KEYS[5], id)
    local target = value and string.match(value, '^=(.*)$') or id
    local said = nil -- its words; of several versions with other words none, which stands for any
    for _, seq in ipairs(locate(value)) do
      local facts, is_current = facts_at(seq)
      if facts then
        local _, words, _, _, _, vectors = string.match(facts, FACTS)
        redis.call('ZREM', is_current and KEYS[2] or KEYS[3], facts)
        if vectors ~= '' then redis.call('ZADD', KEYS[7], seq, facts) end
        if is_current then count = count - 1 end
        said = (said == nil or said == words) and words or ''
        forget_title(seq)
        gone[#gone + 1] = seq
        deleted = deleted + 1
      end
      redis.call('HDEL', KEYS[4], seq)
      local number = 0
      while redis.call('HDEL', KEYS[6], seq .. ':' .. number) == 1 do number = number + 1 end
    end
    if value and head.forget then
      redis.call('HDEL', KEYS[5], target)
    elseif value and string.sub(value, 1, 1) ~= 'x' then
      redis.call('HSET', KEYS[5], target, 'x' .. (said or ''))
    end
  end
  if deleted > 0 then finish({'updated_at', whole(now)}, tonumber(left)) end
elseif head.what == 'after' then
  local seq = locate(redis.call('HGET', KEYS[5], head.after))[1]
  if not seq or not select(2, facts_at(seq)) then return {cjson.encode({refused = 'message', missing = head.after})} end
  for _, facts in ipairs(redis.call('ZRANGE', KEYS[2], seq + 1, '+inf', 'BYSCORE')) do
    supersede(facts)
    deleted = deleted + 1
  end
  finish({'updated_at', whole(now)}, tonumber(left))
else
  deleted = redis.call('ZCARD', KEYS[2]) + redis.call('ZCARD', KEYS[3])
  if head.what == 'thread' then memories, revisions = redis.call('EXISTS', KEYS[10]), redis.call('XLEN', KEYS[11]) end -- may fail
  redis.call('ZUNIONSTORE', KEYS[7], 2, KEYS[7], KEYS[2], 'AGGREGATE', 'MAX')
  local last_row = redis.call('HGET', KEYS[9], 'next')
  redis.call('UNLINK', KEYS[9], unpack(KEYS, 2, 6))
  redis.call('PERSIST', KEYS[7])
  if head.what == 'thread' then
    redis.call('UNLINK', KEYS[1], KEYS[10], KEYS[11])
  else
    forget_title(title_source)
    redis.call('HINCRBY', KEYS[1], 'edits', 1)
    if last_row then redis.call('HSET', KEYS[9], 'next', last_row) end -- ids of rows are not used twice
    count = 0
    finish({'updated_at', whole(now)}, tonumber(left))
  end
end
local gone, is_left = sweep(head.most)
return {cjson.encode({deleted = deleted, vectors = gone, memories = memories, revisions = revisions, is_left = is_left})}
