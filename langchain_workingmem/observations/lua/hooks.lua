-- Goes into the larger variants of scripts that write, behind coverage.lua and kept.lua: the log of the thread learns what changes.
-- The last one of ARGV is for this file: <scope of the observer: t, u, or '' if nothing is counted>/<tokens at which it is due>,<tokens
-- that it reads ahead, or nothing>/<positions of messages that memory has taken out of the list because a log covers them>
local watched, due_at, batch, removed = string.match(table.remove(ARGV), '^(%w*)/(%d*),?(%d*)/(.*)$')

hooks.most_deleted = 20 -- messages in one step; the caller sends the rest

hooks.changed = function(seqs, is_deleted)
  redis.call('HDEL', KEYS[1], 'pending')
  ahead.purge(seqs)
  reopen(seqs)
  if not is_deleted then refresh_hidden() end
  hooks.moved(seqs, is_deleted)
end

if removed ~= '' then
  hooks.left = function(left, gone) return without_removed(left, parse_ranges(removed), gone) end
end

-- Returns the number of observations, and the user whose log shows them ('': none), before all of them are deleted.
hooks.count = function()
  local is_users = redis.call('HGET', KEYS[12], 'scope') == 'u'
  return {count_observations(KEYS[12]), is_users and redis.call('HGET', KEYS[1], 'user') or ''}
end

-- Returns 1 if the log of the user has not counted the thread yet, and no observation covers messages beside the `tokens` of this
-- write: they were imported, cloned, handed over, or stored without observations. Else 0.
local function uncounted(tokens)
  local owner, pending = redis.sha1hex(redis.call('HGET', KEYS[1], 'user')), 0 -- a later owner need not know the name
  if redis.call('HGET', KEYS[1], 'counted_for') == owner then return 0 end
  redis.call('HSET', KEYS[1], 'counted_for', owner)
  each_raw(function(_, _, _, more)
    pending = pending + more
    return pending > tokens
  end)
  return pending > tokens and 1 or 0
end

-- Adds to the reply of a write: 1 if the observer is due, or in scope u what `uncounted` returns; coverage_version, hooks.untold_moves.
hooks.saved = function(is_stored, inserted, tokens)
  local due = 0
  if is_stored and watched == 't' then
    due = ahead.is_observer_due(watched, tonumber(due_at), tonumber(batch), tokens)
  elseif inserted > 0 then
    redis.call('HDEL', KEYS[1], 'pending')
  end
  if is_stored and watched == 'u' then due = uncounted(tokens) end
  return {due, coverage_version(), hooks.untold_moves()}
end
