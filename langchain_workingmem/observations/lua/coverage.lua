-- Goes after log.lua, before the scripts that change messages or what is covered.
-- KEYS[12] (HASH) is the log of the thread (reading.lua), and says which messages it covers: `covered` (sequence numbers), `known`
-- (those that any kept revision covers), `hidden` (covered ones on other branches, with what is cited together with them), `groups`
-- (what is cited together, as 12,13;14,15), `scope` (r: the log of the user shows it, too). The thread has the field `covered`.
-- For recall, each observation has a document beside the vectors of its first source (write_document). All its sources are
-- covered and on the current branch. `d:<seq>` names those of a message: <name>:<size>/<digest>/<sources>;... Names are made of
-- the counter `documents`. `unindexed` says that messages are back on the current branch, whose observations lack theirs.

local function thread_tag()
  return string.match(KEYS[1], '{(.*)}')
end

-- Writes the document of an observation: `value` is <id>|<sources>|<JSON>, ARGV from `first` to `last` hold names and values of
-- further fields.
local function write_document(seqs, value, digest, first, last)
  local seq = string.match(seqs, '^%d+')
  local id = redis.call('ZRANGE', KEYS[2], seq, seq, 'BYSCORE')[1]
  local at, _, size = string.match(id and redis.call('HGET', KEYS[3], id) or '', HEADER)
  if not at then return end
  local suffix = 'o' .. redis.call('HINCRBY', KEYS[12], 'documents', 1) .. ':' .. size
  local key = KEYS[4] .. seq .. ':' .. suffix
  redis.call('HSET', key, 'resource', redis.call('HGET', KEYS[1], 'resource'), 'thread', thread_tag(), 'message', id,
    'created_at', at, 'observation', value, unpack(ARGV, first, last))
  expire_vector(key)
  local others = redis.call('HGET', KEYS[12], 'd:' .. seq)
  redis.call('HSET', KEYS[12], 'd:' .. seq, (others and others .. ';' or '') .. suffix .. '/' .. digest .. '/' .. seqs)
end

-- Returns the text of an observation: `value` is <id>|<sources>|<JSON>. The text of its document is divided for Search.
local function text_of(value)
  local body = string.match(value or '', '^[^|]*|[^|]*|(.*)$')
  return body and cjson.decode(body).text or ''
end

-- Deletes the documents of observations for which is_gone(sources, key, listed) is true: the sources as ranges, and as they are
-- listed (12,13).
local function drop_documents(is_gone)
  if redis.call('HEXISTS', KEYS[12], 'documents') == 0 then return end
  local fields = redis.call('HGETALL', KEYS[12])
  for at = 1, #fields, 2 do
    local first, kept, is_any_gone = string.match(fields[at], '^d:(%d+)$'), {}, false
    for document in string.gmatch(first and fields[at + 1] or '', '[^;]+') do
      local suffix, listed = string.match(document, '^([^/]*)/[^/]*/(.*)$')
      local key = KEYS[4] .. first .. ':' .. suffix
      if is_gone(join_ranges(parse_ranges(listed)), key, listed) then
        redis.call('UNLINK', key)
        is_any_gone = true
      else
        kept[#kept + 1] = document
      end
    end
    if is_any_gone and #kept == 0 then
      redis.call('HDEL', KEYS[12], fields[at])
    elseif is_any_gone then
      redis.call('HSET', KEYS[12], fields[at], table.concat(kept, ';'))
    end
  end
end

-- Deletes the documents of observations of which a source is not covered any more, or on another branch.
local function drop_uncovered_documents()
  local shown = shown_ranges(KEYS[12])
  drop_documents(function(sources) return #subtract_ranges(sources, shown) > 0 end)
end

-- Deletes the documents of observations that a manifest lists and the next one does not; with a condensed observation those of what
-- it stands for, too.
local function drop_replaced_documents(manifest, next_one)
  local _, before = ranges_in(manifest)
  local _, after = ranges_in(next_one)
  local exact, condensed = {}, {}
  for _, range in ipairs(subtract_ranges(join_ranges(before), join_ranges(after))) do
    for number = range[1], range[2] do
      local value = redis.call('HGET', KEYS[12], 'o:' .. as_integer(number))
      local seqs, body = string.match(value or '', '^[^|]*|[^:|]*:([%d,]*)|(.*)$')
      local level = seqs and cjson.decode(body).level
      if level == 0 then exact[seqs .. '|' .. cjson.decode(body).text] = true end
      if level and level > 0 then condensed[#condensed + 1] = join_ranges(parse_ranges(seqs)) end
    end
  end
  drop_documents(function(sources, key, listed)
    local is_gone = exact[listed .. '|' .. text_of(redis.call('HGET', key, 'observation'))]
    for _, ranges in ipairs(condensed) do is_gone = is_gone or #subtract_ranges(sources, ranges) == 0 end
    return is_gone
  end)
end

-- Notes what a manifest covers, and returns it. An older revision may have lost a message that is cited with others: an observation
-- counts with all of its sources only.
local function cover(manifest)
  local ranges, listed = ranges_in(manifest)
  local covered, names, cited, lost = join_ranges(ranges), {}, {}, {}
  for _, range in ipairs(listed) do
    for number = range[1], range[2] do names[#names + 1] = 'o:' .. as_integer(number) end
  end
  for start = 1, #names, 1000 do
    for _, value in ipairs(redis.call('HMGET', KEYS[12], unpack(names, start, math.min(start + 999, #names)))) do
      local seqs = value and string.match(value, '^[^|]*|[^:|]*:([%d,]*)|')
      if seqs and string.find(seqs, ',', 1, true) then cited[#cited + 1] = seqs end
    end
  end
  local groups = table.concat(cited, ';')
  for seq in string.gmatch(groups, '%d+') do lost[tonumber(seq)] = not range_with(covered, tonumber(seq)) or nil end
  add_cocited(lost, groups)
  covered = write_ranges(subtract_ranges(covered, ranges_of(lost)))
  redis.call('HSET', KEYS[12], 'covered', covered, 'groups', groups)
  return covered
end

-- Finds out again which covered messages are on other branches.
local function refresh_hidden()
  local scope, covered, groups, before =
    unpack(redis.call('HMGET', KEYS[12], 'scope', 'covered', 'groups', 'hidden'))
  if not scope then return end
  covered = parse_ranges(covered)
  local set = {}
  add_covered(set, covered, KEYS[7], '-inf', {})
  if next(set) then add_tied(set, covered, groups) end
  local hidden = write_ranges(ranges_of(set))
  if hidden == (before or '') then return end
  redis.call('HSET', KEYS[12], 'hidden', hidden)
  redis.call('HDEL', KEYS[12], 'commit')
  drop_uncovered_documents()
  local back = subtract_ranges(parse_ranges(before), parse_ranges(hidden))
  if #back > 0 and redis.call('HEXISTS', KEYS[12], 'documents') == 1 then redis.call('HSET', KEYS[12], 'unindexed', 1) end
  redis.call('HDEL', KEYS[1], 'pending')
end

-- Takes messages out of what is covered, because they are deleted or edited, with what is cited together with them.
local function reopen(seqs)
  local scope, covered, known, groups = unpack(redis.call('HMGET', KEYS[12], 'scope', 'covered', 'known', 'groups'))
  if not scope then return end
  covered, known = parse_ranges(covered), parse_ranges(known)
  local set = {}
  for _, seq in ipairs(seqs) do
    seq = tonumber(seq) -- a fraction belongs to an older version, which no log knows
    if seq == math.floor(seq) and range_with(known, seq) then set[seq] = true end
  end
  if not next(set) then return end
  add_tied(set, covered, groups)
  local out = ranges_of(set)
  redis.call('HSET', KEYS[12], 'known', write_ranges(subtract_ranges(known, out)))
  redis.call('HDEL', KEYS[1], 'pending')
  purge_log(KEYS[12], out)
  cover(redis.call('HGET', KEYS[12], 'present'))
  drop_uncovered_documents()
  refresh_hidden()
end

-- Calls visit(id, seq, value, tokens) for the messages of the current branch that models are shown as they are, oldest first,
-- until it returns true. `also`: ranges that are left out like covered ones.
local function each_raw(visit, also)
  local covered, low = add_ranges(shown_ranges(KEYS[12]), also or {}), '-inf'
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

-- Adds the tokens of new messages to those that are not covered (`pending` of the thread), and returns whether the observer
-- is due: `most` are reached, no other process observes, and no pause after failures is under way.
local function is_observer_due(scope, most, more)
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
  if pending < most then return 0 end
  local leased, pause = unpack(redis.call('HMGET', KEYS[12], 'leased_until', 'pause_until'))
  return now() > math.max(tonumber(leased or 0), tonumber(pause or 0)) and 1 or 0
end
