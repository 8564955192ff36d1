-- In front of the scripts that compare a list of messages with the thread.
-- An entry stands for one message of the list: {id, words}, and once it is found in the thread {seq, known, back}: its sequence
-- number, the id under which it is stored, and whether it is superseded.

-- What was said on the current branch, as parse_said has it.
local function parsed(members)
  local found = {}
  for at, member in ipairs(members) do found[at] = parse_said(member) end
  return found
end

-- The first message behind a position that was said.
local function next_said(position)
  local member = redis.call('ZRANGE', KEYS[5], '(' .. position, '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1]
  return member and parse_said(member)
end

local function id_at(seq)
  return redis.call('ZRANGE', KEYS[2], seq, seq, 'BYSCORE')[1]
end

-- The id of the message in front of whose sequence number an older version stands.
local function main_id(seq)
  return id_at(seq) or redis.call('ZRANGE', KEYS[7], seq, seq, 'BYSCORE')[1]
end

-- The `said` and `state` of a stored message.
local SAID_AND_STATE = '^{"stored_at":%d+,"vectors":"[^"]*","said":"([^"]*)","state":"([^"]*)",'
local function said_and_state(id)
  return string.match(redis.call('HGET', KEYS[3], id), SAID_AND_STATE)
end

-- Calls visit(id, seq, said, state) for each message of the current branch from a sequence number on, 500 of them read at once.
local function each_on_branch(first, visit)
  local ranked = redis.call('ZRANGE', KEYS[2], first, '+inf', 'BYSCORE', 'WITHSCORES')
  for start = 1, #ranked, 1000 do
    local ids = {}
    for at = start, math.min(start + 999, #ranked), 2 do ids[#ids + 1] = ranked[at] end
    for at, value in ipairs(redis.call('HMGET', KEYS[3], unpack(ids))) do
      visit(ids[at], tonumber(ranked[start + 2 * at - 1]), string.match(value, SAID_AND_STATE))
    end
  end
end

local function is_traffic(said)
  return string.sub(said, 1, 1) == '/'
end

-- Finds the entries that are stored under their ids, or under an id for which theirs is an alias.
local function locate(entries)
  for _, key in ipairs({KEYS[2], KEYS[7], KEYS[8]}) do
    if redis.call('EXISTS', key) == 1 then
      local missing = {}
      for _, entry in ipairs(entries) do
        if not entry.seq and entry.id ~= '' then missing[#missing + 1] = entry end
      end
      for start = 1, #missing, 1000 do
        local ids = {}
        for at = start, math.min(start + 999, #missing) do ids[#ids + 1] = missing[at].id end
        for at, seq in ipairs(redis.call('ZMSCORE', key, unpack(ids))) do
          local entry = missing[start + at - 1]
          if seq then
            entry.seq, entry.known, entry.back = seq_of(seq), entry.id, key == KEYS[7]
            if entry.seq ~= tonumber(seq) then entry.main = main_id(entry.seq) or entry.id end
            if key == KEYS[8] then
              entry.known = id_at(seq)
              if not entry.known then
                entry.known = redis.call('ZRANGE', KEYS[7], seq, seq, 'BYSCORE')[1]
                entry.back = true
              end
              -- deleted since, or what stands under the alias was edited
              if not entry.known or string.match(said_and_state(entry.known), '^%w*') ~= entry.words then
                entry.seq, entry.back, entry.known = nil, nil, nil
              end
            end
          end
        end
      end
    end
  end
end

-- Finds messages of entries[from..to] that have no stored id by what they say. Returns whether any was found, and whether the
-- list begins with what some program added.
-- The list is followed from where it begins in the thread: all of it, a tail, or the beginning of what is left behind.
local MOST_SAID = 5000 -- of the thread's newest, among which a list may begin
local MOST_STEPS = 50000 -- of comparing; a list of the same words over and over could begin anywhere
local function recognise(entries, from, to)
  local anchored, is_lost, found_any
  local position, notes_count
  local recent, places, is_whole, left_behind, behind_places
  local steps = 0

  local function is_note(seq)
    local _, state = said_and_state(id_at(seq))
    return state == ''
  end

  -- Where in a list of what was said each of the words stand.
  local function index_of(said)
    local index = {}
    for at, one in ipairs(said) do
      if not index[one.words] then index[one.words] = {next = 1} end
      table.insert(index[one.words], at)
    end
    return index
  end

  local function superseded_said()
    if not left_behind then
      left_behind = {}
      local ranked = redis.call('ZRANGE', KEYS[7], '+inf', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, MOST_SAID, 'WITHSCORES')
      for at = #ranked - 1, 1, -2 do
        local words = string.match(said_and_state(ranked[at]), '^%w*')
        if words ~= '' then
          local seq = tonumber(ranked[at + 1])
          local one = {seq = seq_of(seq), words = words, id = ranked[at], back = true}
          if one.seq ~= seq then one.main = main_id(one.seq) or one.id end
          left_behind[#left_behind + 1] = one
        end
      end
      behind_places = index_of(left_behind)
    end
    return left_behind
  end

  -- The message behind `at` that an entry may stand for: the next that was said on the branch, what other programs added
  -- aside, else one that was left behind.
  local function following(at, words)
    local low = at
    while true do
      local next = next_said(low)
      if not next then break end
      if next.words == words then return next end
      if notes_count or not is_note(next.seq) then break end
      low = next.seq
    end
    local behind = superseded_said()
    local same = behind_places[words]
    while same and same[same.next] do -- positions only rise, so none is looked at twice
      local one = behind[same[same.next]]
      if one.seq > at then return one end
      same.next = same.next + 1
    end
  end

  -- How many entries from `i` on stand in a list of what was said from place `s` on, and whether that list is then at its end.
  local function run(i, said, s, may_skip)
    local length = 0
    while i <= to and s <= #said do
      steps = steps + 1
      if steps > MOST_STEPS then return length, false end
      local entry = entries[i]
      if entry.words == '' then
        i = i + 1
      elseif entry.words == said[s].words then
        length, i, s = length + 1, i + 1, s + 1
      elseif may_skip and is_note(said[s].seq) then
        s = s + 1
      else
        return length, false
      end
    end
    return length, s > #said
  end

  local last_answer = 0
  for at = from, to do
    if string.sub(entries[at].words, 1, 1) == 'a' then last_answer = at end
  end

  local function beginning(i)
    if not recent then
      recent = parsed(redis.call('ZRANGE', KEYS[5], -MOST_SAID, -1))
      is_whole = redis.call('ZCARD', KEYS[5]) <= MOST_SAID
      places = index_of(recent)
    end
    local has_answer = last_answer >= i
    local best, length, reaches = nil, 0, false
    local same = places[entries[i].words] or {}
    for at = #same, 1, -1 do
      if steps > MOST_STEPS then break end
      local s = same[at]
      local count, ends = run(i, recent, s, not is_note(recent[s].seq))
      local fits = ends or (has_answer and (count >= 2 or (s == 1 and is_whole)))
      if fits and (count > length or (count == length and ends and not reaches)) then
        best, length, reaches = recent[s], count, ends
      end
    end
    if has_answer then
      local behind = superseded_said()
      for _, s in ipairs(behind_places[entries[i].words] or {}) do
        if steps > MOST_STEPS then break end
        local count = run(i, behind, s, false)
        if count >= 2 and count > length then best, length = behind[s], count end
      end
    end
    return best
  end

  for i = from, to do
    local entry = entries[i]
    if entry.seq then
      if entry.words ~= '' then
        if not anchored then notes_count = select(2, said_and_state(entry.known)) == '' end
        position, is_lost, anchored = math.max(position or -1, entry.seq), false, true
      end
    elseif entry.words ~= '' and not is_lost then
      local found
      if position then found = following(position, entry.words) else found = beginning(i) end
      if found then
        entry.seq, entry.known, entry.back = found.seq, found.id or id_at(found.seq), found.back or false
        entry.main = found.main
        if not anchored then notes_count = select(2, said_and_state(entry.known)) == '' end
        position, anchored, found_any = found.seq, true, true
      elseif position then
        is_lost = true
      end
    end
  end
  return found_any, notes_count
end

-- The stored tool traffic between messages of the list between which the list has tool traffic of its own, without our ids:
-- there the caller's version stands for it.
local function resent_traffic(entries, from, to)
  local covered, last, has_own = {}, nil, false
  for i = from, to do
    local entry = entries[i]
    if entry.words == '' then
      has_own = has_own or not entry.seq
    elseif entry.seq then
      if last and has_own then
        for _, key in ipairs({KEYS[2], KEYS[7]}) do
          for _, id in ipairs(redis.call('ZRANGE', key, '(' .. last, '(' .. entry.seq, 'BYSCORE')) do
            if is_traffic(said_and_state(id)) then covered[id] = true end
          end
        end
      end
      last, has_own = entry.seq, false
    end
  end
  return covered
end

-- What a list of a caller leaves behind, their sequence numbers, what it takes up again, and where it begins. `notes_count`: the list begins with what some program
-- added, so that is what its own program does, and other such messages are no longer somebody else's.
local function compare_list(entries, from, to, notes_count)
  local kept, first, last = resent_traffic(entries, from, to), nil, nil
  local back = {}
  for i = from, to do
    local entry = entries[i]
    if entry.seq then
      kept[entry.known] = true
      first = math.min(first or entry.seq, entry.seq)
      if entry.back then
        back[#back + 1] = entry.known
        if last and entry.words ~= '' then -- with the tool traffic that led to it
          for _, id in ipairs(redis.call('ZRANGE', KEYS[7], '(' .. last, '(' .. entry.seq, 'BYSCORE')) do
            if is_traffic(said_and_state(id)) then
              back[#back + 1] = id
              kept[id] = true
            end
          end
        end
      end
      if entry.words ~= '' then last = entry.seq end
    end
  end
  local left, gone, waiting = {}, {}, {}
  local function leave(id, seq)
    left[#left + 1] = id
    gone[seq] = true
  end
  local function supersede_waiting()
    for _, one in ipairs(waiting) do leave(one[1], one[2]) end
    waiting = {}
  end
  if first then
    each_on_branch(first, function(id, seq, said, state)
      if kept[id] then
        if not is_traffic(said) then waiting = {} end -- the tool traffic in front of what stays stays
      elseif state ~= '' or notes_count then
        if is_traffic(said) then
          waiting[#waiting + 1] = {id, seq}
        else
          supersede_waiting()
          leave(id, seq)
        end
      end
    end)
    -- a question that is asked again leaves behind whatever came of it
    local final = entries[to]
    if final and final.seq and string.sub(final.words, 1, 1) == 'q' then supersede_waiting() end
  end
  return left, gone, back, first
end
