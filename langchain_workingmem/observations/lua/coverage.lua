-- Goes after log.lua, before the scripts that change messages or what is covered.
-- KEYS[12] (HASH) is the log of the thread (reading.lua), and says which messages it covers: `covered` (sequence numbers), `hidden`
-- (covered ones on other branches, with what is covered together with them), `scope` (r: the log of the user shows it, too). The thread has the field `covered`.

local function thread_tag()
  return string.match(KEYS[1], '{(.*)}')
end

-- Notes what a manifest covers.
local function cover(manifest)
  redis.call('HSET', KEYS[12], 'covered', write_ranges(join_ranges((ranges_in(manifest)))))
end

-- Writes a manifest without making it a revision: messages are gone, or hidden. With `has_older` it lists lines again that readers may
-- have forgotten.
local function replace_manifest(manifest, has_older)
  redis.call('HSET', KEYS[12], 'present', manifest)
  if has_older then redis.call('HDEL', KEYS[12], 'version') end -- as a log made anew
  raise_version(KEYS[12])
end

-- Finds out again which covered messages are on other branches. Finer lines take the place of those that stand for one of them.
local function refresh_hidden()
  local scope, covered, before, present = unpack(redis.call('HMGET', KEYS[12], 'scope', 'covered', 'hidden', 'present'))
  if not scope then return end
  covered, before = parse_ranges(covered), before or ''
  local newest = tonumber(redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2] or -1)
  local is_small = redis.call('ZCARD', KEYS[2]) < redis.call('ZCARD', KEYS[7])
  local superseded = is_small and subtract_ranges(covered, covered_in(KEYS[2], covered))
    or add_ranges(covered_in(KEYS[7], covered, newest), subtract_ranges(covered, {{0, newest}}))
  if #superseded == 0 and before == '' then return end
  local ranges, cites = add_covered_together(superseded, covered, true)
  local manifest, hidden = finer(present or '', smaller_part(ranges, covered), cites), write_ranges(ranges)
  if manifest then
    replace_manifest(manifest, true)
    release(subtract_ranges(listed_in(present), listed_in(manifest)))
  end
  if hidden == before then return end
  redis.call('HSET', KEYS[12], 'hidden', hidden)
  redis.call('HDEL', KEYS[12], 'commit')
  redis.call('HDEL', KEYS[1], 'pending')
end

-- Forgets messages, because they are deleted, edited or observed again: each line that cites one of them is deleted, with all that
-- stand for it. Finer lines take the place of the latter. What the log covered together with the messages is shown as it is again.
local function reopen(seqs)
  local scope, covered, hidden, present = unpack(redis.call('HMGET', KEYS[12], 'scope', 'covered', 'hidden', 'present'))
  if not scope then return end
  covered, present = parse_ranges(covered), present or ''
  local out, gone, uncovered, has_coarse = {}, {}, {}, false
  for _, seq in ipairs(seqs) do
    if tonumber(seq) == math.floor(seq) then out[tonumber(seq)] = true end -- a fraction belongs to an older version, which no log knows
  end
  local ranges = add_covered_together(ranges_of(out), covered, {})
  local cites = citing(ranges)
  for number in pairs(cites) do gone[number] = true end
  add_coarser(gone)
  for number in pairs(gone) do has_coarse = has_coarse or not cites[number] end
  for _, range in ipairs(ranges) do
    for seq = range[1], range[2] do
      if range_with(covered, seq) and message_at(seq) then uncovered[seq] = true end
    end
  end
  if next(gone) == nil and next(uncovered) == nil then return end
  uncovered = ranges_of(uncovered)
  for field, ranges in pairs({covered = covered, hidden = parse_ranges(hidden)}) do
    redis.call('HSET', KEYS[12], field, write_ranges(subtract_ranges(ranges, uncovered)))
  end
  redis.call('HDEL', KEYS[1], 'pending')
  replace_manifest(expanded(present, gone, uncovered), has_coarse)
  release(ranges_of(gone))
end

-- Calls visit(id, seq, value, tokens) for the messages of the current branch that models are shown as they are, oldest first,
-- until it returns true. `also`: ranges that are left out like covered ones; `covered` takes the place of what the log covers.
local function each_raw(visit, also, covered)
  local low = '-inf'
  covered = add_ranges(covered or shown_ranges(KEYS[12]), also or {})
  while true do
    local ranked = redis.call('ZRANGE', KEYS[2], low, '+inf', 'BYSCORE', 'LIMIT', 0, 500, 'WITHSCORES')
    if #ranked == 0 then return end
    local ids, seqs = {}, {}
    for at = 1, #ranked, 2 do
      local seq = tonumber(ranked[at + 1])
      local range = range_with(covered, seq)
      low = range and as_integer(range[2] + 1) or '(' .. ranked[at + 1]
      if not range then ids[#ids + 1], seqs[#seqs + 1] = ranked[at], seq end
    end
    for at, value in ipairs(#ids > 0 and redis.call('HMGET', KEYS[3], unpack(ids)) or {}) do
      if value then
        local _, _, _, _, said = string.match(value, HEADER)
        local tokens, refused = string.match(said, '^%w*/(%d+)/%d+(!?)')
        if refused == '' and visit(ids[at], seqs[at], value, tonumber(tokens)) then return end
      end
    end
  end
end
