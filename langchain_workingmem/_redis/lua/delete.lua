#!lua flags=allow-oom
-- Deletes messages, all of a thread, or vectors that are left of them.
-- ARGV  1 {user, what, ids, last, most, version}
--   what   'messages' (of `ids`, noted as deleted; an id with a version behind the seq `last` stays), 'all' messages,
--          'thread', 'sweep' (vectors), 'undo' (a write that met the deletion of its user: the thread goes if it is new
--          and as `version` says, else the messages of `ids`, as if they had never been)
-- Reply {deleted, vectors, working_memories, revisions, is_left, renew}; {vectors, is_left} if there is no thread
local reason, what = refusal(head.user, owner), head.what
local is_rest = reason == 'damaged' and what == 'thread' and head.user == '' -- what an eviction has left of a thread
if reason and not is_rest then return {cjson.encode({refused = reason})} end
if what == 'undo' then what = head.version == version and 'thread' or 'messages' end
local reply = {}
if what == 'messages' and owner then
  for _, id in ipairs(head.ids) do
    local value = redis.call('HGET', KEYS[5], id)
    local target, seqs, said = value and string.match(value, '^=(.*)$') or id, locate(value), nil
    if math.max(0, unpack(seqs)) > (head.last or math.huge) then value, seqs = nil, {} end
    for _, seq in ipairs(seqs) do
      local message = message_at(seq)
      if message then
        redis.call('ZREM', message.set, message.facts)
        hide(message)
        said = (said == nil or said == message.digest) and message.digest or '' -- if versions differ: any digest
        changed[#changed + 1] = seq
      end
      redis.call('HDEL', KEYS[4], seq)
      delete_media(seq)
    end
    if value and head.what == 'undo' then
      redis.call('HDEL', KEYS[5], target)
    elseif value and string.sub(value, 1, 1) ~= 'x' then
      redis.call('HSET', KEYS[5], target, 'x' .. (said or ''))
    end
  end
  reply.deleted = #changed
elseif what ~= 'sweep' and (owner or is_rest) then
  reply.working_memories, reply.revisions = redis.call('EXISTS', KEYS[10]), redis.call('XLEN', KEYS[11])
  reply.deleted = redis.call('ZCARD', KEYS[2]) + redis.call('ZCARD', KEYS[3])
  redis.call('ZUNIONSTORE', KEYS[7], 2, KEYS[7], KEYS[2], 'AGGREGATE', 'MAX')
  local last_row, ids = redis.call('HGET', KEYS[9], 'next'), what == 'all' and redis.call('HGETALL', KEYS[5])
  redis.call('UNLINK', KEYS[9], unpack(KEYS, 2, 6))
  if what == 'thread' then
    redis.call('UNLINK', KEYS[1], KEYS[10], KEYS[11])
  else
    forget_title(title_source)
    redis.call('HINCRBY', KEYS[1], 'edits', 1)
    if last_row then redis.call('HSET', KEYS[9], 'next', last_row) end -- ids of rows are not used twice
    -- what was deleted by id stays away
    for at = 2, #ids, 2 do if string.find(ids[at], '^x') then redis.call('HSET', KEYS[5], ids[at - 1], ids[at]) end end
    count = 0
  end
end
if owner and what == 'all' or #changed > 0 then reply.renew = finish({'updated_at', whole(now)}) end
reply.vectors, reply.is_left = sweep(head.most)
return {cjson.encode(reply)}
