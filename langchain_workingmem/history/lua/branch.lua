-- Common to the scripts that compare the caller's list of messages with the thread.
-- An entry is one message of the list: {id, words}. If the thread holds it, also {seq, known, back, main}: its sequence number, its
-- stored id, whether it is superseded, and, for an older version, the id of its message.

-- The members of `said` as parse_said returns them.
local function parsed(members)
  local found = {}
  for at, member in ipairs(members) do found[at] = parse_said(member) end
  return found
end

local function id_at(seq)
  return redis.call('ZRANGE', KEYS[2], seq, seq, 'BYSCORE')[1]
end

-- The id of the message with a sequence number, whether it is on the current branch or superseded.
local function any_id_at(seq)
  return id_at(seq) or redis.call('ZRANGE', KEYS[7], seq, seq, 'BYSCORE')[1]
end

-- The `said` and `state` of a stored message.
local SAID_AND_STATE = '^{"stored_at":%d+,"vectors":"[^"]*","said":"([^"]*)","state":"([^"]*)",'
local function said_and_state(id)
  return string.match(redis.call('HGET', KEYS[3], id), SAID_AND_STATE)
end

local function words_of(id)
  return string.match(said_and_state(id), '^%w*')
end

local function state_of(id)
  return select(2, said_and_state(id))
end

local function is_traffic(said)
  return string.sub(said, 1, 1) == '/'
end

-- Calls visit(id, seq, said, state) for each message of the current branch from a sequence number on, reading 500 at once.
local function each_message(first, visit)
  local ranked = redis.call('ZRANGE', KEYS[2], first, '+inf', 'BYSCORE', 'WITHSCORES')
  for start = 1, #ranked, 1000 do
    local ids = {}
    for at = start, math.min(start + 999, #ranked), 2 do ids[#ids + 1] = ranked[at] end
    for at, value in ipairs(redis.call('HMGET', KEYS[3], unpack(ids))) do
      visit(ids[at], tonumber(ranked[start + 2 * at - 1]), string.match(value, SAID_AND_STATE))
    end
  end
end

-- Finds the entries that are stored under their ids, or under ids that theirs are aliases of.
local function locate(entries)
  for _, key in ipairs({KEYS[2], KEYS[7], KEYS[8]}) do
    local missing = {}
    for _, entry in ipairs(redis.call('EXISTS', key) == 1 and entries or {}) do
      if not entry.seq and entry.id ~= '' then missing[#missing + 1] = entry end
    end
    for start = 1, #missing, 1000 do
      local ids = {}
      for at = start, math.min(start + 999, #missing) do ids[#ids + 1] = missing[at].id end
      for at, seq in ipairs(redis.call('ZMSCORE', key, unpack(ids))) do
        local entry = missing[start + at - 1]
        if seq and key == KEYS[8] then
          local current = id_at(seq)
          local known = current or any_id_at(seq)
          -- else the message was deleted or edited since it got the alias
          if known and words_of(known) == entry.words then
            entry.seq, entry.known, entry.back = seq_of(seq), known, not current
          end
        elseif seq then
          entry.seq, entry.known, entry.back = seq_of(seq), entry.id, key == KEYS[7]
          if entry.seq ~= tonumber(seq) then entry.main = any_id_at(entry.seq) or entry.id end
        end
      end
    end
  end
end

-- Finds entries[from..to] without stored ids by their words. Returns whether it found any, and whether the list begins with a
-- message that some program added.
-- The list may be all of the thread, its end, or the beginning of what was superseded.
local MOST_SAID = 5000 -- newest messages of the thread among which a list may begin
local MOST_STEPS = 50000 -- comparisons: a list that repeats the same words could begin anywhere
local function recognise(entries, from, to)
  local position, anchored, is_lost, found_any, notes_count
  local recent, recent_at, is_whole, superseded, superseded_at
  local steps = 0

  local function is_note(seq)
    return state_of(id_at(seq)) == ''
  end

  -- Maps words to their indexes in a list.
  local function index_of(said)
    local index = {}
    for at, one in ipairs(said) do
      if not index[one.words] then index[one.words] = {next = 1} end
      table.insert(index[one.words], at)
    end
    return index
  end

  local function read_superseded()
    if superseded then return end
    superseded = {}
    local ranked = redis.call('ZRANGE', KEYS[7], '+inf', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, MOST_SAID, 'WITHSCORES')
    for at = #ranked - 1, 1, -2 do
      local words = words_of(ranked[at])
      if words ~= '' then
        local seq = tonumber(ranked[at + 1])
        local one = {seq = seq_of(seq), words = words, id = ranked[at], back = true}
        if one.seq ~= seq then one.main = any_id_at(one.seq) or one.id end
        superseded[#superseded + 1] = one
      end
    end
    superseded_at = index_of(superseded)
  end

  -- The message after `position` with these words: the next of the current branch, where messages that other programs added
  -- are skipped, else a superseded one.
  local function following(position, words)
    local low = position
    while true do
      local member = redis.call('ZRANGE', KEYS[5], '(' .. low, '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1]
      local next = member and parse_said(member)
      if next and next.words == words then return next end
      if not next or not (is_data(next.words) or (not notes_count and is_note(next.seq))) then break end
      low = next.seq
    end
    read_superseded()
    local same = superseded_at[words]
    while same and same[same.next] do -- positions only rise, so none is read twice
      local one = superseded[same[same.next]]
      if one.seq > position then return one end
      same.next = same.next + 1
    end
  end

  -- How many entries from `i` on equal `said` from index `s` on, and whether that is the end of `said`.
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
      elseif is_data(entry.words) then
        i = i + 1
      elseif is_data(said[s].words) then
        s = s + 1
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
      recent_at = index_of(recent)
    end
    local has_answer = last_answer >= i
    local best, length, reaches = nil, 0, false
    local same = recent_at[entries[i].words] or {}
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
      read_superseded()
      for _, s in ipairs(superseded_at[entries[i].words] or {}) do
        if steps > MOST_STEPS then break end
        local count = run(i, superseded, s, false)
        if count >= 2 and count > length then best, length = superseded[s], count end
      end
    end
    return best
  end

  for i = from, to do
    local entry = entries[i]
    if entry.words ~= '' and (entry.seq or not is_lost) then
      local found
      if not entry.seq then
        if position then found = following(position, entry.words) else found = beginning(i) end
        if found then
          entry.seq, entry.known, entry.back = found.seq, found.id or id_at(found.seq), found.back or false
          entry.main = found.main
          position, found_any = found.seq, true
        elseif is_data(entry.words) then
          entry.words = ''
        elseif position then
          is_lost = true
        end
      else
        position, is_lost = math.max(position or -1, entry.seq), false
      end
      if entry.seq and not anchored then
        notes_count, anchored = state_of(entry.known) == '', true
      end
    end
  end
  return found_any, notes_count
end

-- The stored tool traffic that the list replaces: between two messages of the list it has tool traffic without stored ids.
local function resent_traffic(entries, from, to)
  local covered, last, has_own = {}, nil, false
  for i = from, to do
    local entry = entries[i]
    if entry.words == '' or is_data(entry.words) then
      has_own = has_own or entry.id ~= entry.known
    elseif entry.seq then
      if last and has_own then
        for _, key in ipairs({KEYS[2], KEYS[7]}) do
          for _, id in ipairs(redis.call('ZRANGE', key, '(' .. last, '(' .. entry.seq, 'BYSCORE')) do
            local said = said_and_state(id)
            if is_traffic(said) or is_data(said) then covered[id] = true end
          end
        end
      end
      last, has_own = entry.seq, false
    end
  end
  return covered
end

-- Returns the ids that the list leaves behind, their sequence numbers as a set, the ids that it takes up again, and the sequence
-- number where it begins. If the list begins with a message that some program added (`notes_count`), its own program does that,
-- and such messages may be left behind, too.
local function compare_list(entries, from, to, notes_count)
  local kept, back, first, last = resent_traffic(entries, from, to), {}, nil, nil
  for i = from, to do
    local entry = entries[i]
    if entry.seq then
      notes_count = notes_count or (not first and state_of(entry.known) == '')
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
  local is_other = first -- the list shares only what a program sent in front of its first turn: perhaps examples
  for i = from, to do
    local entry = entries[i]
    if entry.seq and (entry.id == entry.known or state_of(entry.known) ~= 'b') then is_other = false end
  end
  if is_other then return left, gone, back, first end
  local function supersede_waiting()
    for _, one in ipairs(waiting) do
      left[#left + 1] = one.id
      gone[one.seq] = true
    end
    waiting = {}
  end
  if first then
    each_message(first, function(id, seq, said, state)
      if kept[id] then
        if not is_traffic(said) then waiting = {} end -- the tool traffic before a message stays with it
      elseif state ~= '' or notes_count then
        waiting[#waiting + 1] = {id = id, seq = seq}
        if not is_traffic(said) and not is_data(said) then supersede_waiting() end
      end
    end)
    -- a question that is asked again leaves all of its turn behind
    local final = entries[to]
    if final and final.seq and string.sub(final.words, 1, 1) == 'q' then supersede_waiting() end
  end
  return left, gone, back, first
end
