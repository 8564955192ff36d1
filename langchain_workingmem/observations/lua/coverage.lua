-- Goes after log.lua, before the scripts that change messages or what is covered.
-- KEYS[12] (HASH) is the log of the thread (reading.lua), and says which messages it covers: `covered` (sequence numbers), `hidden`
-- (covered ones on other branches, with what is covered together with them), `again` (covered by bare lines only: the observer reads
-- them again), `scope` (r: the log of the user shows it, too). The thread has the field `covered`.

local function thread_tag()
  return string.match(KEYS[1], '{(.*)}')
end

-- Notes which messages the bare lines cite that a manifest lists and the one before did not; and that none cites `out` any more.
local function note_bare(before, manifest, out)
  local bare = redis.call('HGET', KEYS[12], 'bare')
  if not bare then return end
  bare = parse_ranges(bare)
  local again, numbers = {}, {}
  for _, range in ipairs(subtract_ranges(subtract_ranges(bare, subtract_ranges(bare, listed_in(manifest))), listed_in(before))) do
    for number = range[1], range[2] do numbers[#numbers + 1] = number end
  end
  load_lines(numbers)
  for _, number in ipairs(numbers) do
    for _, seq in ipairs(seqs_in(lines[number] and lines[number].seqs or '')) do again[#again + 1] = {seq, seq} end
  end
  again = add_ranges(subtract_ranges(parse_ranges(redis.call('HGET', KEYS[12], 'again')), out), join_ranges(again))
  redis.call('HSET', KEYS[12], 'again', write_ranges(again))
end

-- Notes what a manifest covers.
local function cover(manifest)
  redis.call('HSET', KEYS[12], 'covered', write_ranges(join_ranges((ranges_in(manifest)))))
  note_bare('', manifest, ALL)
end

-- Returns what the log covers on the current branch, without what the observer reads again.
local function observed_ranges()
  return subtract_ranges(shown_ranges(KEYS[12]), parse_ranges(redis.call('HGET', KEYS[12], 'again')))
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
    note_bare(present, manifest, {})
    release(subtract_ranges(listed_in(present), listed_in(manifest)))
  end
  if hidden == before then return end
  redis.call('HSET', KEYS[12], 'hidden', hidden)
  redis.call('HDEL', KEYS[12], 'commit')
  redis.call('HDEL', KEYS[1], 'pending')
end

-- Returns what goes when messages are forgotten (`out`, a set): `gone`, the lines that cite one of them, those that stand for such a line,
-- and bare lines behind these; `loose`, covered messages that only lines of `gone` cite that the present manifest shows; `rest`, further
-- messages of their tool traffic; tokens of `loose` and `rest` on the current branch; one of the lines; whether `gone` has others than citing ones.
local function loosened(out, covered, present)
  local cites, gone, loose, rest = citing(ranges_of(out)), {}, {}, {}
  for number in pairs(cites) do gone[number] = true end
  add_coarser(gone)
  local is_live, has_coarse, shown, tokens, value = liveness(present), false, {}, 0, nil
  for number in pairs(gone) do
    local line = is_live(number) and line_of(number)
    has_coarse = has_coarse or not cites[number]
    if line and cites[number] then shown[#shown + 1] = number end
    for _, range in ipairs(line and parse_ranges(line.parts) or {}) do
      for part = range[1], range[2] do
        if not gone[part] and (line_of(part) or {}).is_bare then shown[#shown + 1] = part end
      end
    end
  end
  for _, number in ipairs(shown) do
    local line = line_of(number)
    gone[number], value = true, value or line.value
    for _, seq in ipairs(seqs_in(line.seqs)) do loose[seq] = not out[seq] and range_with(covered, seq) and true or nil end
  end
  for number in pairs(citing(ranges_of(loose))) do -- which other lines cite, too
    local line = not gone[number] and is_live(number) and line_of(number)
    for _, seq in ipairs(line and seqs_in(line.seqs) or {}) do loose[seq] = nil end
  end
  for seq in pairs(traffic_of(loose, covered, {})) do
    if not loose[seq] and not out[seq] then rest[seq] = true end
  end
  for _, set in ipairs({loose, rest}) do
    for seq in pairs(set) do
      local _, more, _, is_current = message_at(seq)
      tokens = tokens + (is_current and more or 0)
    end
  end
  return {gone = gone, loose = loose, rest = rest, tokens = tokens, value = value, has_coarse = has_coarse}
end

-- Forgets messages, because they are deleted, edited or observed again: each line that cites one of them is deleted,
-- with all that stand for it. Finer lines take the place of the latter. What only deleted lines cited beside is shown as it is again,
-- as far as it has MOST_TOKENS, or the first such message; for others, and for parts of tool traffic whose other parts stay covered,
-- there are bare lines. `with_traffic`: a call is forgotten with its results. `raw`: tokens that earlier steps of the same call show
-- again. Returns these and its own.
local function reopen(seqs, with_traffic, raw)
  local scope, covered, hidden, present = unpack(redis.call('HMGET', KEYS[12], 'scope', 'covered', 'hidden', 'present'))
  raw = raw or 0
  if not scope then return raw end
  covered, present = parse_ranges(covered), present or ''
  local out = {}
  for _, seq in ipairs(seqs) do
    if tonumber(seq) == math.floor(seq) then out[tonumber(seq)] = true end -- a fraction belongs to an older version, which no log knows
  end
  for seq in pairs(with_traffic and traffic_of(out, covered, {}) or {}) do out[seq] = true end
  local found = loosened(out, covered, present)
  local beside = raw -- and tokens of `out` that are forgotten only for the sake of tool traffic
  while next(found.rest) and beside + found.tokens <= MOST_TOKENS do
    local wider, more = {}, beside
    for seq in pairs(out) do wider[seq] = true end
    for seq in pairs(found.rest) do wider[seq], more = true, more + (select(2, message_at(seq)) or 0) end
    local next_one = loosened(wider, covered, present)
    if more + next_one.tokens > MOST_TOKENS then break end
    out, found, beside = wider, next_one, more
  end

  local uncovered, bare, size, loose = {}, {}, beside, found.loose
  for _, range in ipairs(ranges_of(loose)) do
    for seq = range[1], range[2] do
      local unit, tokens, is_current, is_whole = traffic_of({[seq] = true}, covered, {}), 0, false, true
      unit[seq] = true
      for one in pairs(unit) do
        local _, more, _, is_there = message_at(one)
        tokens, is_current = tokens + (more or 0), is_current or is_there
        is_whole = is_whole and (loose[one] or out[one])
      end
      if uncovered[seq] or not is_current or (is_whole and (size == 0 or size + tokens <= MOST_TOKENS)) then
        if is_current and not uncovered[seq] then size = size + tokens end
        for one in pairs(unit) do uncovered[one] = uncovered[one] or loose[one] end
      else
        bare[#bare + 1] = seq
      end
    end
  end
  for seq in pairs(out) do
    if range_with(covered, seq) and message_at(seq) then uncovered[seq] = true end
  end
  if next(found.gone) == nil and next(uncovered) == nil then return raw end
  uncovered = ranges_of(uncovered)
  local manifest = expanded(present, found.gone, uncovered)
  if #bare > 0 then
    local chunk = thread_tag() .. '//' .. write_ranges(join_ranges(add_bare_lines(thread_of(found.value), bare))) .. '/0'
    manifest = manifest .. (manifest ~= '' and ';' or '') .. chunk
  end
  for field, ranges in pairs({covered = covered, hidden = parse_ranges(hidden)}) do
    redis.call('HSET', KEYS[12], field, write_ranges(subtract_ranges(ranges, uncovered)))
  end
  redis.call('HDEL', KEYS[1], 'pending')
  replace_manifest(manifest, found.has_coarse)
  note_bare(present, manifest, add_ranges(ranges_of(out), uncovered))
  release(ranges_of(found.gone))
  return size
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
