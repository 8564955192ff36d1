-- Common to the scripts that compare the caller's list of messages with the thread; tests/history/branch_model.py says the same.
-- An entry is one message of the list: {id, words}. If the thread holds it, also {seq, known, back, main}: its sequence number, its
-- stored id, whether it is superseded, and, for an older version, the id of its message.

-- The members of `said` as parse_said returns them.
local function parsed(members)
  local found = {}
  for at, member in ipairs(members) do found[at] = parse_said(member) end
  return found
end

local function id_at(seq) return redis.call('ZRANGE', KEYS[2], seq, seq, 'BYSCORE')[1] end

-- The id of the message with a sequence number, whether it is on the current branch or superseded.
local function any_id_at(seq)
  return id_at(seq) or redis.call('ZRANGE', KEYS[7], seq, seq, 'BYSCORE')[1]
end

-- The id of the message that a superseded one is an older version of, if it is one.
local function main_of(id, score)
  local seq = seq_of(score)
  return seq ~= tonumber(score) and (any_id_at(seq) or id) or nil
end

-- The `said` and `state` of a stored message.
local SAID_AND_STATE = '^{"stored_at":%d+,"vectors":"[^"]*","said":"([^"]*)","state":"([^"]*)",'
local function said_and_state(id)
  return string.match(redis.call('HGET', KEYS[3], id), SAID_AND_STATE)
end

local function words_of(id) return string.match(said_and_state(id), '^%w*') end

local function state_of(id) return select(2, said_and_state(id)) end

local function is_traffic(said) return string.sub(said, 1, 1) == '/' end

-- Calls visit(id, score, said, state) for the messages of a sorted set between two scores, reading 500 at once.
local function each_in(key, low, high, visit)
  local ranked = redis.call('ZRANGE', key, low, high, 'BYSCORE', 'WITHSCORES')
  for start = 1, #ranked, 1000 do
    local ids = {}
    for at = start, math.min(start + 999, #ranked), 2 do ids[#ids + 1] = ranked[at] end
    for at, value in ipairs(redis.call('HMGET', KEYS[3], unpack(ids))) do
      visit(ids[at], tonumber(ranked[start + 2 * at - 1]), string.match(value, SAID_AND_STATE))
    end
  end
end

-- Calls visit(id, seq, said, state) for each message of the current branch from a sequence number on.
local function each_message(first, visit)
  each_in(KEYS[2], first, '+inf', visit)
end

-- Finds the entries that are stored under their ids, or under ids that theirs are aliases of, and those that were forgotten (delete.lua).
local function locate(entries)
  for _, key in ipairs({KEYS[2], KEYS[7], KEYS[8]}) do
    local missing = {}
    for _, entry in ipairs(redis.call('EXISTS', key) == 1 and entries or {}) do
      if not entry.seq and entry.id ~= '' then missing[#missing + 1] = entry end
    end
    for start = 1, #missing, 1000 do
      local ids = {}
      for at = start, math.min(start + 999, #missing) do ids[#ids + 1] = missing[at].id end
      for at, score in ipairs(redis.call('ZMSCORE', key, unpack(ids))) do
        local entry, is_alias = missing[start + at - 1], key == KEYS[8]
        local known = score and (is_alias and any_id_at(score) or not is_alias and entry.id)
        if known and (not is_alias or words_of(known) == entry.words) then -- else it was edited since it got the alias
          entry.seq, entry.known, entry.main = seq_of(score), known, main_of(known, score)
          entry.back = key == KEYS[7] or (is_alias and not id_at(score))
        end
        entry.is_deleted = score == '-2' -- KEYS[8] comes last
        entry.is_forgotten = entry.is_forgotten or score == '-1' or entry.is_deleted
      end
    end
  end
end

-- Whether messages were deleted from the beginning of the thread: sequence numbers begin at 0, or later where a thread of
-- the same id has left trash.
local function is_cut()
  local function lowest(key) return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or 1) end
  return math.min(lowest(KEYS[2]), lowest(KEYS[7])) > 0
end

-- Finds entries[from..to] without stored ids by their words. Returns whether it found any, and whether the list begins with a
-- message that some program added.
local recognise
do
  local MOST_SAID = 5000 -- newest messages of the thread among which a list may begin
  local MOST_STEPS = 50000 -- comparisons: a list that repeats the same words could begin anywhere

  -- Whether a program added the message of the current branch with a sequence number.
  local function is_note(seq)
    return state_of(id_at(seq)) == ''
  end

  -- Adds to messages with words where which words are.
  local function indexed(said)
    said.at = {}
    for at, one in ipairs(said) do
      said.at[one.words] = said.at[one.words] or {}
      table.insert(said.at[one.words], at)
    end
    return said
  end

  local function superseded_of(list)
    if list.superseded then return list.superseded end
    local said, oldest = {}, redis.call('ZRANGE', KEYS[7], -MOST_SAID, -MOST_SAID, 'WITHSCORES')[2]
    each_in(KEYS[7], oldest or '-inf', '+inf', function(id, score, one)
      local words = string.match(one, '^%w*')
      if words == '' then return end
      said[#said + 1] = {seq = seq_of(score), words = words, id = id, back = true, main = main_of(id, score)}
    end)
    list.superseded = indexed(said)
    return said
  end

  -- The message after `position` with these words: the next of the current branch, where structured answers, what the caller's
  -- context did not know and, unless they count, messages that programs added are skipped; else a superseded one.
  local function following(list, position, words, notes_count)
    local low = position
    while true do
      local member = redis.call('ZRANGE', KEYS[5], '(' .. low, '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1]
      local next = member and parse_said(member)
      if next and next.words == words then return next end
      if not next or not (next.seq >= list.seen or is_data(next.words) or (not notes_count and is_note(next.seq))) then break end
      low = next.seq
    end
    local said = superseded_of(list)
    local same = said.at[words] or {}
    for at = same.next or 1, #same do
      if said[same[at]].seq > position then return said[same[at]] end
      same.next = at + 1 -- positions only rise, so none is read twice
    end
  end

  -- How many entries from `i` on equal `said` from index `s` on, and whether that is the end of `said`.
  local function agreement(list, i, said, s)
    local first, length = said[s], 0
    while i <= list.to and s <= #said do
      list.steps = list.steps + 1
      if list.steps > MOST_STEPS then return length, false end
      local words, one = list.entries[i].words, said[s]
      if words == one.words then
        length, i, s = length + 1, i + 1, s + 1
      elseif words == '' or is_data(words) then
        i = i + 1
      elseif is_data(one.words) or (not one.back and is_note(one.seq) and not is_note(first.seq)) then
        s = s + 1
      else
        return length, false
      end
    end
    return length, s > #said
  end

  -- The message that entries[i] is, if the list begins with it: where most of the list follows, as near to the end as possible.
  -- The list may be all of the thread, its end, or the beginning of what was superseded.
  local function beginning(list, i)
    if list.steps > MOST_STEPS then return end
    list.recent = list.recent or indexed(parsed(redis.call('ZRANGE', KEYS[5], -MOST_SAID, -1)))
    local has_answer, words = list.last_answer >= i, list.entries[i].words
    local best, length, reaches = nil, 0, false
    local function try(said, s)
      local count, ends = agreement(list, i, said, s)
      ends = ends and not said[s].back
      local is_first = s == 1 and not said[s].back and #said < MOST_SAID
      local fits = ends or (has_answer and (count >= 2 or is_first))
      if fits and (count > length or (count == length and ends and not reaches)) then
        best, length, reaches = said[s], count, ends
      end
    end
    local same = list.recent.at[words] or {}
    for at = #same, 1, -1 do try(list.recent, same[at]) end
    for _, s in ipairs(has_answer and superseded_of(list).at[words] or {}) do try(list.superseded, s) end
    if i >= (list.begin or 0) or length > list.overlap then return best end
  end

  -- Where in the list a thread begins whose first messages were deleted: where most agrees with those that are left. Of equal
  -- places the last one behind which something new follows: what was deleted is not to return. Second, how much has to be exceeded
  -- by a list that begins elsewhere.
  local function cut_at(list, from)
    local said = parsed(redis.call('ZRANGE', KEYS[5], 0, list.to - from))
    local best, length, adds = nil, 0, false
    for i = from, said[1] and list.to or 0 do
      local count = list.entries[i].words == said[1].words and agreement(list, i, said, 1) or 0
      local is_followed = i + count <= list.to
      if count > length or (count > 0 and count == length and (is_followed or not adds)) then
        best, length, adds = i, count, is_followed
      end
    end
    return best, adds and length or length - 1
  end

  -- The sequence number of the forgotten message (delete.lua) that an entry repeats: of its kind, between the message at
  -- `position` and the next one.
  local function forgotten_after(position, words)
    local next = redis.call('ZRANGE', KEYS[5], '(' .. position, '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1]
    local last = next and '(' .. as_integer(parse_said(next).seq) or '+inf'
    for _, most in ipairs({8, -1}) do -- the first place is mostly the one
      for _, member in ipairs(redis.call('ZRANGE', KEYS[8], '(' .. position, last, 'BYSCORE', 'LIMIT', 0, most)) do
        local kind, seq = string.match(member, '^forgotten:(%a):(%d+)$')
        if kind == string.sub(words, 1, 1) then return tonumber(seq) end
      end
    end
  end

  recognise = function(entries, from, to, seen)
    local list = {entries = entries, to = to, seen = seen or math.huge, steps = 0, last_answer = 0}
    local asked = 0
    for at = from, to do
      local kind = string.sub(entries[at].words, 1, 1)
      if kind == 'a' then list.last_answer = at elseif kind == 'q' then asked = at end
    end
    local position, notes_count
    if is_cut() then list.begin, list.overlap = cut_at(list, from) end
    local is_lost, found_any, is_forgotten = false, false, false -- the last: what was forgotten goes on
    for i = from, to do
      local entry = entries[i]
      local words, found = entry.words, nil
      if words ~= '' and not (entry.seq or entry.is_forgotten or is_lost) then
        if position then found = following(list, position, words, notes_count) else found = beginning(list, i) end
        if found then
          entry.seq, entry.known, entry.main = found.seq, found.id or id_at(found.seq), found.main
          entry.back, found_any = found.back or false, true
        elseif is_data(words) then
          entry.words = ''
        else
          local seq = position and i < asked and forgotten_after(position, words)
          is_forgotten = seq or (is_forgotten and i < asked and string.sub(words, 1, 1) == 'a')
          entry.is_forgotten, position = is_forgotten, seq or position
          is_lost = position ~= nil and not is_forgotten
        end
      end
      is_forgotten = is_forgotten and not entry.seq
      if words ~= '' and entry.seq then
        position, is_lost = math.max(position or -1, entry.seq), false
        if notes_count == nil then notes_count = state_of(entry.known) == '' end
      end
    end
    return found_any, notes_count
  end
end

-- The stored tool traffic that the list replaces: between two messages of the list it has tool traffic without stored ids. One of
-- the two, or the question in front of all that is stored, may have been deleted.
local function resent_traffic(entries, from, to)
  local replaced, last, has_own = {}, nil, false
  for i = from, to do
    local entry = entries[i]
    if entry.words == '' or is_data(entry.words) then
      has_own = has_own or entry.id ~= entry.known
    elseif entry.seq or entry.is_forgotten then
      local begins = not last and entry.seq and is_cut() and redis.call('ZCOUNT', KEYS[5], '-inf', '(' .. entry.seq) == 0
      local next = not entry.seq and last and redis.call('ZRANGE', KEYS[5], '(' .. last, '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1]
      local high = entry.seq or (next and as_integer(parse_said(next).seq))
      for _, key in ipairs(has_own and (last or begins) and {KEYS[2], KEYS[7]} or {}) do
        each_in(key, last and '(' .. last or '-inf', high and '(' .. high or '+inf', function(id, _, said)
          if is_traffic(said) or is_data(said) then replaced[id] = true end
        end)
      end
      last, has_own = entry.seq or last, false
    end
  end
  return replaced
end

-- The ids of the current branch from `first` on that a list leaves behind, and their sequence numbers as a set. `kept` are the ids
-- that it holds. What programs added stays, unless it counts. What was stored from `seen` on, which the caller's context did not
-- know, stays, unless it answers the question `asked`, too.
local function left_behind(first, kept, notes_count, seen, asked, is_asked_again)
  local left, gone, waiting = {}, {}, {}
  local function supersede_waiting()
    for _, one in ipairs(waiting) do
      left[#left + 1] = one.id
      gone[one.seq] = true
    end
    waiting = {}
  end
  each_message(first, function(id, seq, said, state)
    if kept[id] then
      if not is_traffic(said) then waiting = {} end -- the tool traffic before a message stays with it
    elseif (state ~= '' or notes_count) and (seq < seen or state == asked) then
      waiting[#waiting + 1] = {id = id, seq = seq}
      if not is_traffic(said) and not is_data(said) then supersede_waiting() end
    end
  end)
  if is_asked_again then supersede_waiting() end -- with all of its turn
  return left, gone
end

-- Returns the ids that the list leaves behind, their sequence numbers as a set, the ids that it takes up again, and the sequence
-- number where it begins. If the list begins with a message that some program added (`notes_count`), its own program does that,
-- and such messages may be left behind, too.
local function compare_list(entries, from, to, notes_count, seen)
  local kept, back, taken, first, last, asked = resent_traffic(entries, from, to), {}, {}, nil, nil, nil
  local is_other = true -- the list shares only what a program sent in front of its first turn: perhaps examples
  local function take_up(id)
    if not taken[id] then back[#back + 1] = id end
    taken[id], kept[id] = true, true
  end
  for i = from, to do
    local entry = entries[i]
    if entry.seq then
      notes_count = notes_count or (not first and state_of(entry.known) == '')
      is_other = is_other and entry.id ~= entry.known and state_of(entry.known) == 'b'
      kept[entry.known] = true
      first = math.min(first or entry.seq, entry.seq)
      if entry.back then take_up(entry.known) end
      if entry.back and last and entry.words ~= '' then -- with the tool traffic that led to it
        each_in(KEYS[7], '(' .. last, '(' .. entry.seq, function(id, _, said)
          if is_traffic(said) then take_up(id) end
        end)
      end
      if entry.words ~= '' then last = entry.seq end
    end
    if string.sub(entry.words, 1, 1) == 'q' then asked = entry.seq and 't' .. as_integer(entry.seq) end
  end
  if is_other then return {}, {}, back, first end
  local left, gone = left_behind(first, kept, notes_count, seen, asked, asked and string.sub(entries[to].words, 1, 1) == 'q')
  return left, gone, back, first
end
