-- Goes behind coverage.lua, before the scripts that write what was read ahead, and those that change messages.
-- `ahead` of the log lists what observations were written for before it was due: <number>/<tokens>/<sequence numbers>;...
-- Their observations stand in `ahead:<number>`, one a line: |<sources>|<JSON>. None of it is shown, and the messages are raw, until
-- ahead.activate makes all of it a revision.


local ahead = {} -- functions: a script may have 200 local names

function ahead.entries()
  local entries = {}
  for number, tokens, seqs in string.gmatch(redis.call('HGET', KEYS[12], 'ahead') or '', '(%d+)/(%d+)/([^/;]*)') do
    entries[#entries + 1] = {number = tonumber(number), tokens = tonumber(tokens), seqs = parse_ranges(seqs)}
  end
  return entries
end

function ahead.write(entries)
  local parts = {}
  for at, one in ipairs(entries) do
    parts[at] = as_integer(one.number) .. '/' .. as_integer(one.tokens) .. '/' .. write_ranges(one.seqs)
  end
  if #parts == 0 then return redis.call('HDEL', KEYS[12], 'ahead') end
  redis.call('HSET', KEYS[12], 'ahead', table.concat(parts, ';'))
end

-- Returns which messages were read ahead, and their tokens.
function ahead.ranges(entries)
  local ranges, tokens = {}, 0
  for _, one in ipairs(entries or ahead.entries()) do
    tokens = tokens + one.tokens
    for _, range in ipairs(one.seqs) do ranges[#ranges + 1] = range end
  end
  return join_ranges(ranges), tokens
end

-- Returns where the last turn begins (math.huge: there is none), and whether it is answered.
function ahead.present_turn()
  local begins, is_answered = math.huge, false
  local members = redis.call('ZRANGE', KEYS[5], '+inf', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 100)
  for at, member in ipairs(members) do
    local said = parse_said(member)
    local is_question = string.sub(said.words, 1, 1) == 'q'
    if at == 1 then is_answered = not is_question and redis.call('ZCOUNT', KEYS[2], '(' .. said.seq, '+inf') == 0 end
    if not is_question and begins < math.huge then break end
    if is_question then begins = said.seq end
  end
  return begins, is_answered
end

-- Calls visit(seq, tokens) for the newest messages that are not covered, until it returns true.
function ahead.each_newest(visit)
  local covered, high = shown_ranges(KEYS[12]), '+inf'
  while true do
    local ranked = redis.call('ZRANGE', KEYS[2], high, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 200, 'WITHSCORES')
    if #ranked == 0 then return end
    for at = 1, #ranked, 2 do
      local seq = tonumber(ranked[at + 1])
      local range = range_with(covered, seq)
      high = '(' .. (range and as_integer(range[1]) or ranked[at + 1])
      if range then break end -- on before what is covered
      local _, _, _, _, said = string.match(redis.call('HGET', KEYS[3], ranked[at]) or '', HEADER)
      if visit(seq, tonumber(string.match(said or '', '^%w*/(%d+)') or 0)) then return end
    end
  end
end

-- Shows what was read ahead, as one revision, but for steps of a present turn of at most `long` tokens. Returns whether there is any.
function ahead.activate(long)
  local entries = ahead.entries()
  if #entries == 0 then return false end
  local begins, turn_tokens = ahead.present_turn(), 0
  ahead.each_newest(function(seq, tokens)
    if seq < begins then return true end
    turn_tokens = turn_tokens + tokens
    return turn_tokens > long
  end)
  local kept, chunks, new = {}, {}, {}
  for _, one in ipairs(entries) do
    local last = one.seqs[#one.seqs]
    if last and last[2] >= begins and turn_tokens <= long then
      kept[#kept + 1] = one
    else
      local field = 'ahead:' .. as_integer(one.number)
      local first, count = redis.call('HGET', KEYS[12], 'next') or 0, 0
      for value in string.gmatch(redis.call('HGET', KEYS[12], field) or '', '[^\n]+') do
        count = count + 1
        local id = as_integer(first + count)
        new[#new + 1] = {id, id .. value}
      end
      redis.call('HSET', KEYS[12], 'next', as_integer(first + count))
      redis.call('HDEL', KEYS[12], field)
      local numbers = count > 0 and write_ranges({{first + 1, first + count}}) or ''
      if last then
        chunks[#chunks + 1] = {last[2], table.concat({thread_tag(), write_ranges(one.seqs), numbers, '0'}, '/')}
      end
    end
  end
  ahead.write(kept)
  if #chunks == 0 then return false end
  table.sort(chunks, function(a, b) return a[1] < b[1] end)
  local present = redis.call('HGET', KEYS[12], 'present')
  local manifest = present and present ~= '' and {present} or {}
  for _, chunk in ipairs(chunks) do manifest[#manifest + 1] = chunk[2] end
  manifest = table.concat(manifest, ';')
  local names = redis.call('HGET', KEYS[12], 'commit')
  write_revision(KEYS[12], manifest, 'observe')
  if names then redis.call('HSET', KEYS[12], 'commit', names) end
  for _, line in ipairs(new) do add_line(line[1], line[2]) end
  cover(manifest)
  redis.call('HDEL', KEYS[1], 'pending')
  refresh_hidden()
  return true
end

-- Forgets messages that were read ahead, and the observations that cite one of `seqs`; the others that these cite are read again.
function ahead.purge(seqs)
  local entries, left, out = ahead.entries(), {}, {}
  for _, seq in ipairs(seqs) do out[tonumber(seq)] = true end
  for _, one in ipairs(entries) do
    local field, lost, values, cited = 'ahead:' .. as_integer(one.number), {}, {}, {}
    for seq in pairs(out) do lost[seq] = range_with(one.seqs, seq) and true or nil end
    for value in string.gmatch(redis.call('HGET', KEYS[12], field) or '', '[^\n]+') do
      values[#values + 1], cited[#cited + 1] = value, string.match(value, '^|[^:|]*:([%d,]*)|')
    end
    if next(lost) then
      add_tied(lost, one.seqs, table.concat(cited, ';'))
      local lines, before, after = {}, 0, 0
      for at, value in ipairs(values) do
        if not lost[tonumber(string.match(cited[at], '^%d+'))] then lines[#lines + 1] = value end
      end
      for _, range in ipairs(one.seqs) do before = before + range[2] - range[1] + 1 end
      one.seqs = subtract_ranges(one.seqs, ranges_of(lost))
      for _, range in ipairs(one.seqs) do after = after + range[2] - range[1] + 1 end
      one.tokens = math.floor(one.tokens * after / before)
      redis.call('HSET', KEYS[12], field, table.concat(lines, '\n'))
    end
    if #one.seqs > 0 then left[#left + 1] = one else redis.call('HDEL', KEYS[12], field) end
  end
  if #entries > 0 then ahead.write(left) end
end

-- Forgets all that was read ahead.
function ahead.drop()
  for _, one in ipairs(ahead.entries()) do redis.call('HDEL', KEYS[12], 'ahead:' .. as_integer(one.number)) end
  redis.call('HDEL', KEYS[12], 'ahead')
end

-- Returns the tokens of the messages that are not covered, counted up to `most`, and notes them (`pending` of the thread).
function ahead.pending_tokens(scope, most, more)
  local field, pending = redis.call('HGET', KEYS[1], 'pending'), nil
  if field and string.sub(field, 1, 1) == scope then
    pending = tonumber(string.sub(field, 2)) + more
  else
    pending = 0
    each_raw(function(_, _, _, tokens)
      pending = pending + tokens
      return pending >= most
    end)
  end
  redis.call('HSET', KEYS[1], 'pending', scope .. as_integer(pending), 'covered', 1)
  return pending
end

-- Counts new messages, shows what was read ahead if `most` tokens are not covered, and returns whether the observer is due: `most`
-- are reached, or `batch` from the half of it on that were not read ahead ('': it does not read ahead); no other process observes,
-- and no pause after failures is under way.
function ahead.is_observer_due(scope, most, batch, more)
  local pending = ahead.pending_tokens(scope, most, more)
  if pending < (batch and most / 2 or most) then return 0 end
  local leased, pause, listed = unpack(redis.call('HMGET', KEYS[12], 'leased_until', 'pause_until', 'ahead'))
  if listed and pending >= most and ahead.activate(most) then pending = ahead.pending_tokens(scope, most, 0) end
  local tokens = listed and select(2, ahead.ranges()) or 0
  if pending < most and not (batch and pending >= most / 2 and pending - tokens >= batch) then return 0 end
  return now() > math.max(tonumber(leased or 0), tonumber(pause or 0)) and 1 or 0
end
