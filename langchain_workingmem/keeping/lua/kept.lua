-- Goes before observations/hooks.lua, into the larger variants of scripts that change messages. A thread that a keeper has read has
-- the field `kept`: u, t or both, the working memories that may hold values of its messages. These go before a message does: the
-- script answers WMKEPT <what>/<kept>/<owner>/<all or sequence numbers>/<ids>, and writes nothing, until the last one of ARGV
-- begins with <what is forgotten: all or sequence numbers>@<by which owner>!; the thread may have another one since then
-- Fields of the thread: `moves` counts changes of its branches, `moves_told` those that the values know, and `unforgotten` has
-- messages that were swapped for an older version, whose values are still to go.
do -- a script may have 200 local names
  local forgotten, by, rest = string.match(ARGV[#ARGV], '^([^!@]*)@([^!]*)!(.*)$')
  if rest then ARGV[#ARGV] = rest end
  if by and by ~= redis.call('HGET', KEYS[1], 'user') then forgotten = nil end
  local kept = redis.call('HGET', KEYS[1], 'kept')
  hooks.is_kept = kept and true
  if kept and string.find(kept, 't', 1, true) then -- expires with the thread
    KEYS[13] = string.gsub(KEYS[10], ':memory:t:{', ':values:t:{', 1)
  end

  -- Returns messages as ranges, and their ids, with those that a client has used for them.
  local function described(seqs)
    local ranges, ids = {}, {}
    for _, seq in ipairs(seqs) do
      if tonumber(seq) == math.floor(seq) then ranges[#ranges + 1] = {tonumber(seq), tonumber(seq)} end -- no older versions
      for _, key in ipairs({KEYS[2], KEYS[7], KEYS[8]}) do
        for _, id in ipairs(redis.call('ZRANGE', key, seq, seq, 'BYSCORE')) do
          ids[#ids + 1] = string.gsub(id, '[^%w_.~-]', function(byte) return string.format('%%%02X', string.byte(byte)) end)
        end
      end
    end
    return join_ranges(ranges), table.concat(ids, ',')
  end

  -- Returns an error reply if values of these messages (nil: all) have to go first.
  hooks.keeps = function(what, seqs)
    if not kept or forgotten == 'all' or (what == 'delete' and #seqs == 0) then return end
    local ranges, ids
    if seqs then
      ranges, ids = described(seqs)
      if forgotten and #subtract_ranges(ranges, parse_ranges(forgotten)) == 0 then return end
    end
    local owner = redis.call('HGET', KEYS[1], 'user')
    return redis.error_reply(table.concat({'WMKEPT ' .. what, kept, owner, ranges and write_ranges(ranges) or 'all', ids or ''}, '/'))
  end

  -- Whether a message says something else than the stored one; a copy that holds less of it (behind a blank) does not.
  hooks.is_edited = function(old, body, words, mode)
    -- the body of a cloned message holds the id of its source
    local function without_ids(one) return (string.gsub(one, '"id":"[^"]*"', '')) end
    local _, _, _, _, said, _, rest = string.match(old, HEADER)
    local old_words, before = string.match(said, '^%w*'), string.sub(old, rest)
    if string.byte(body) == 32 or before == body then return false end
    if words == '' and mode ~= 'turn' and is_data(old_words) then words = old_words end -- only a turn knows how it ends
    return words ~= old_words or (words == '' and without_ids(body) ~= without_ids(before))
      or string.match(body, ',"media":(%b[])}$') ~= string.match(old, ',"media":(%b[])}$')
  end

  -- The same as `keeps`, for messages that a write is about to edit.
  hooks.edits = function(entries, mode)
    local seqs = {}
    for _, entry in ipairs(kept and mode ~= 'heal' and entries or {}) do
      local old = redis.call('HGET', KEYS[3], entry.id)
      if old and hooks.is_edited(old, ARGV[entry.argument + 1], entry.words, mode) then
        seqs[#seqs + 1] = redis.call('ZSCORE', KEYS[2], entry.id) or redis.call('ZSCORE', KEYS[7], entry.id) or nil
      end
    end
    if #seqs > 0 then return hooks.keeps('edit', seqs) end
  end

  -- Notes that messages have moved between branches; and those that were edited without WMKEPT.
  hooks.moved = function(seqs, is_deleted)
    if not kept or is_deleted then return end
    redis.call('HINCRBY', KEYS[1], 'moves', 1)
    local left = forgotten == 'all' and {} or subtract_ranges((described(seqs)), parse_ranges(forgotten))
    if #left > 0 then
      local before = parse_ranges(redis.call('HGET', KEYS[1], 'unforgotten'))
      redis.call('HSET', KEYS[1], 'unforgotten', write_ranges(add_ranges(before, left)))
    end
  end

  -- Returns what values do not know yet: <kept>/<owner>/<moves>/<unforgotten>, or nothing.
  hooks.untold_moves = function()
    if not kept then return '' end
    local owner, moves, told, left = unpack(redis.call('HMGET', KEYS[1], 'user', 'moves', 'moves_told', 'unforgotten'))
    return moves ~= told and kept .. '/' .. owner .. '/' .. moves .. '/' .. (left or '') or ''
  end
end
