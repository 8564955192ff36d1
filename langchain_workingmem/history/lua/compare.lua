-- Goes after branch.lua and before write.lua: compares the messages with the thread, and moves messages between branches.

do -- a script has at most 200 local variables at once
  -- Supersedes messages that a list has left behind, and takes up others again.
  local function follow(done, left, back)
    if hooks.left then left = hooks.left(left, {}) end
    local gone = supersede_messages(left)
    done.count, done.changed, done.is_moved = done.count - gone, done.changed or gone > 0, done.is_moved or gone > 0
    for _, id in ipairs(back) do
      local is_back, main = restore_message(id)
      done.count = done.count + is_back
      done.changed, done.is_moved = done.changed or is_back == 1 or main ~= id, done.is_moved or is_back == 1
      done.revived[#done.revived + 1] = main
    end
  end

  -- If the list begins with messages that are older than the thread, which does not grow there, where the thread begins in it.
  -- What is appended by id counts as a conversation only if there are answers before the thread.
  local function begin_in_list(mode, entries, is_list)
    local begin = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
    local words, copies, may_be = begin and is_list and words_of(begin), {}, false
    local said = words == '' and is_cut() and redis.call('ZRANGE', KEYS[5], 0, 0)[1]
    if said then begin, words = id_at(as_integer(parse_said(said).seq)), parse_said(said).words end -- tool traffic outlived its question
    for at, entry in ipairs(entries) do
      copies[at] = {id = entry.id, words = entry.words}
      may_be = may_be or (at > 1 and (entry.id == begin or entry.words == words))
    end
    if not may_be then return false end
    locate(copies)
    if is_list then recognise(copies, 1, #copies) end
    local has_question, has_answer, number, is_sure, first = false, false, nil, false, nil
    for at, entry in ipairs(copies) do
      if number and entry.seq and entry.words ~= '' then number = number + 1 end
      if not number and entry.known == begin then number, is_sure, first = 1, entry.id == begin, at end
      if not number and not entry.seq and not is_data(entry.words) then
        local kind = string.sub(entry.words, 1, 1)
        has_question, has_answer = has_question or kind == 'q', has_answer or kind == 'a'
      end
    end
    -- one equal message is not enough to know the thread by, as people say "hi" more than once
    local is_known = is_sure or (number or 0) > 1 or (number == 1 and redis.call('ZCARD', KEYS[5]) == 1)
    return is_known and has_question and (has_answer or mode == 'turn') and first
  end

  -- Where the last turn begins.
  local function last_turn(entries)
    local begin
    for at = #entries, 1, -1 do
      local kind = string.sub(entries[at].words, 1, 1)
      if kind == 'q' then begin = at elseif begin then break end
    end
    return begin
  end

  -- A client sends its conversation again: the same list, longer, shorter, or on another branch.
  local function follow_list(done, entries, seen)
    local _, notes_count = recognise(entries, 1, #entries, seen)
    local left, _, back = compare_list(entries, 1, #entries, notes_count, seen)
    follow(done, left, back)
    -- tool traffic without stored ids, between two messages of the thread, is stored already, or was deleted with one of them
    local last, between = nil, {}
    for _, entry in ipairs(entries) do
      if entry.words == '' then
        if not entry.seq then between[#between + 1] = entry end
      else
        local is_known = entry.seq or entry.is_forgotten
        for _, one in ipairs(is_known and last and between or {}) do one.is_copy = true end
        last, between = is_known, {}
      end
    end
  end

  -- A question that is answered again leaves its own turn behind, but not what other programs have added since; one that is edited
  -- under its id what a list with it would.
  local function follow_turn(done, entries, is_edited, seen)
    local asked, has_answer, is_new, kept, left = nil, false, false, {}, {}
    for _, entry in ipairs(entries) do
      local kind = string.sub(entry.words, 1, 1)
      if kind == 'q' then asked = entry end
      has_answer = has_answer or kind == 'a'
      is_new = is_new or (kind ~= '' and not entry.seq)
      if entry.known then kept[entry.known] = true end
    end
    if not (asked and asked.seq) then return end
    if is_edited[asked.known] and words_of(asked.known) ~= asked.words then
      left = compare_list(entries, 1, #entries, false, seen)
      return follow(done, left, {})
    end
    if not (has_answer and is_new) then return end
    for _, id in ipairs(redis.call('ZRANGE', KEYS[2], '(' .. asked.seq, '+inf', 'BYSCORE', 'LIMIT', 0, 500)) do
      if not kept[id] and state_of(id) == 't' .. as_integer(asked.seq) then left[#left + 1] = id end
    end
    follow(done, left, {})
  end

  hooks.compare = function(done, given)
    local mode, entries, is_list = given.mode, given.entries, given.is_list
    local begin = #entries > 1 and given.has_messages and (mode == 'append' or is_list) and begin_in_list(mode, entries, is_list)
    if begin and not (is_list and is_cut()) then return redis.error_reply('WMOLDER') end
    if is_list and given.had_messages and redis.call('EXISTS', KEYS[2]) == 0 then begin = last_turn(entries) end
    for at = 1, (begin or 1) - 1 do entries[at].is_forgotten = true end -- they were deleted, and stay so
    if given.question and redis.call('ZSCORE', KEYS[7], given.question) then -- another client has left it behind while it was answered
      table.insert(given.back, given.question)
    end
    follow(done, given.left, given.back)
    -- the older versions of questions that were edited under their ids
    local is_edited = {}
    for _, id in ipairs(given.versions) do is_edited[id] = true end
    if mode == 'turn' and given.has_thread then
      locate(entries)
      local is_anew = false -- a question may be asked under the id of a deleted one, and its answer may have such an id
      for _, entry in ipairs(entries) do
        is_anew = is_anew or entry.id == given.question
        entry.is_forgotten = entry.is_forgotten and not (is_anew and entry.is_deleted)
      end
      if is_list then follow_list(done, entries, given.seen) else follow_turn(done, entries, is_edited, given.seen) end
    end
    for _, entry in ipairs(given.is_turn and mode == 'append' and entries or {}) do -- an agent saves each message once
      local gone = tonumber(redis.call('ZSCORE', KEYS[8], entry.id) or 0)
      local is_gone = gone == -1 or (gone == -2 and entry.id ~= given.question)
      entry.is_forgotten = entry.is_forgotten or (is_gone and redis.call('HEXISTS', KEYS[3], entry.id) == 0)
    end
    for _, entry in ipairs(entries) do
      local seq = is_edited[entry.id] and redis.call('ZSCORE', KEYS[2], entry.id)
      if seq and words_of(entry.id) ~= entry.words then -- equal words: this is a repeat after a lost reply
        keep_version(entry.id, seq, redis.call('HGET', KEYS[3], entry.id))
      end
    end
    local may_revive = redis.call('EXISTS', KEYS[7]) == 1
    hooks.revive = function(id)
      if not may_revive then return id end
      local is_back, main = restore_message(id)
      done.count = done.count + is_back
      done.changed, done.is_moved = done.changed or is_back == 1, done.is_moved or is_back == 1
      return main
    end
  end
end
