-- Goes after lines.lua, before the scripts that find out what a log covers on a branch.

-- Adds to a set of sequence numbers those that are cited together with one of them: `groups` are 12,13;14,15.
local function add_cocited(set, groups)
  local with, waiting = {}, {} -- the groups of each number; numbers whose groups are still to be added
  for group in string.gmatch(groups or '', '[^;]+') do
    local seqs = {}
    for seq in string.gmatch(group, '%d+') do seqs[#seqs + 1] = tonumber(seq) end
    for _, seq in ipairs(seqs) do
      with[seq] = with[seq] or {}
      table.insert(with[seq], seqs)
    end
  end
  for seq in pairs(set) do waiting[#waiting + 1] = seq end
  while #waiting > 0 do
    local seq = table.remove(waiting)
    for _, seqs in ipairs(with[seq] or {}) do
      for _, other in ipairs(seqs) do
        if not set[other] then
          set[other] = true
          waiting[#waiting + 1] = other
        end
      end
    end
    with[seq] = nil
  end
end

-- Returns the messages of the tool traffic of a set of covered sequence numbers on the current branch, as a set: a call and its
-- results are shown together or not at all. `others` are on other branches.
local function traffic_of(set, covered, others)
  local found, more = {}, {}
  local function role_of(id)
    local value = redis.call('HGET', KEYS[3], id)
    local said, _, rest = select(5, string.match(value or '', HEADER))
    return rest and role_at(value, rest), said and string.sub(said, 1, 1) == '/'
  end
  local function beside(seq, limit, ...)
    local id, at = unpack(redis.call('ZRANGE', KEYS[2], '(' .. as_integer(seq), limit, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES', ...))
    if id then return tonumber(at), role_of(id) end
  end
  for seq in pairs(set) do
    local id = not others[seq] and redis.call('ZRANGE', KEYS[2], seq, seq, 'BYSCORE')[1]
    local role, is_traffic = role_of(id or '')
    if is_traffic then
      local head = seq
      while role == 'tool' or role == 'function' do -- back to the call
        head, role = beside(head, '-inf', 'REV')
        if head then found[head] = role == 'ai' or role == 'tool' or role == 'function' end
      end
      local last, next_role = beside(seq, '+inf')
      while next_role == 'tool' or next_role == 'function' do -- on to the last result
        found[last] = true
        last, next_role = beside(last, '+inf')
      end
    end
  end
  for seq, is_one in pairs(found) do
    if is_one and range_with(covered, seq) then more[seq] = true end
  end
  return more
end

-- Adds to a set of messages of one commit all that are covered together with one of them: `groups` are cited together.
local function add_tied(set, given, groups)
  repeat
    add_cocited(set, groups)
    local has_grown = false
    for seq in pairs(traffic_of(set, given, {})) do
      has_grown = has_grown or not set[seq]
      set[seq] = true
    end
  until not has_grown
end

-- Adds to `ranges` of covered messages all that the log covers together with one of them: a line is shown for all that it cites, or
-- not at all. `others` are on other branches; true: all of `ranges` are. Returns them, and if nothing was added what `citing` has found.
local function add_covered_together(ranges, covered, others)
  local is_live, fresh, first = liveness(redis.call('HGET', KEYS[12], 'present')), ranges, nil
  while #fresh > 0 do
    local set, more = {}, {}
    local found = citing(others == true and fresh == ranges and smaller_part(ranges, covered) or fresh)
    first = first == nil and found
    for number, seqs in pairs(found) do
      for _, seq in ipairs(type(seqs) == 'table' and is_live(number) and seqs or {}) do set[seq] = true end
    end
    if others ~= true or fresh ~= ranges then
      local own = {}
      for _, range in ipairs(fresh) do
        for seq = range[1], range[2] do own[seq] = true end
      end
      for seq in pairs(traffic_of(own, covered, others == true and {} or others)) do set[seq] = true end
    end
    for seq in pairs(set) do more[seq] = not range_with(ranges, seq) or nil end
    fresh = ranges_of(more)
    ranges = add_ranges(ranges, fresh)
  end
  return ranges, first
end

-- Returns the covered messages in a sorted set, as ranges; `most`: up to this one.
local function covered_in(key, covered, most)
  local last, found = covered[#covered], {}
  local ranked = last and redis.call('ZRANGE', key, '-inf', math.min(last[2], most or last[2]), 'BYSCORE', 'WITHSCORES') or {}
  for at = 2, #ranked, 2 do
    local seq, newest = tonumber(ranked[at]), found[#found]
    if newest and newest[2] == seq - 1 and range_with(covered, seq) then
      newest[2] = seq
    elseif seq == math.floor(seq) and range_with(covered, seq) then
      found[#found + 1] = {seq, seq}
    end
  end
  return found
end

-- Adds to a set the covered sequence numbers that stand in a sorted set of messages from `low` on, except some.
local function add_covered(set, covered, key, low, except)
  local last = covered[#covered]
  if not last then return end
  local ranked = redis.call('ZRANGE', key, low, last[2], 'BYSCORE', 'WITHSCORES')
  for at = 2, #ranked, 2 do
    local seq = tonumber(ranked[at])
    if seq == math.floor(seq) and not except[seq] and range_with(covered, seq) then set[seq] = true end
  end
end

-- Returns what a list of messages has left behind, without what memory has taken out of it because a log covered it.
-- `gone` are the sequence numbers of `left`, as a set.
local function without_removed(left, removed, gone)
  local kept = {}
  for _, id in ipairs(left) do
    local seq = redis.call('ZSCORE', KEYS[2], id)
    if seq and range_with(removed, tonumber(seq)) then
      gone[tonumber(seq)] = nil
    else
      kept[#kept + 1] = id
    end
  end
  return kept
end
