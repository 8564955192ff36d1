-- Goes after header.lua and ranges.lua, before the scripts that read what a log covers, or the log itself.
-- A log is a HASH: `present` is its manifest, `o:<number>` one observation. A manifest lists chunks, joined by `;`:
--   <thread as a tag>/<sequence numbers that it covers>/<numbers of its observations>/<level>
-- An observation is <id>|<tag>:<seq>,<seq>;<tag>:<seq>|<JSON>.

-- Adds to a set of sequence numbers those that an observation cites together with one of them.
local function add_cocited(set, groups)
  local waiting = {}
  for group in string.gmatch(groups or '', '[^;]+') do
    local seqs = {}
    for seq in string.gmatch(group, '%d+') do seqs[#seqs + 1] = tonumber(seq) end
    waiting[#waiting + 1] = seqs
  end
  repeat
    local has_grown, left = false, {}
    for _, seqs in ipairs(waiting) do
      local is_hit = false
      for _, seq in ipairs(seqs) do is_hit = is_hit or set[seq] end
      if is_hit then
        has_grown = true
        for _, seq in ipairs(seqs) do set[seq] = true end
      else
        left[#left + 1] = seqs
      end
    end
    waiting = left
  until not has_grown
end

-- Adds to a set of covered sequence numbers the other messages of their tool traffic on the current branch: a call and its
-- results are shown together or not at all. Returns whether there were any. `others` are on other branches.
local function add_traffic(set, covered, others)
  local found, has_grown = {}, false
  local function role_of(id)
    local value = redis.call('HGET', KEYS[3], id)
    local said, _, rest = select(5, string.match(value or '', HEADER))
    return rest and role_at(value, rest), said and string.sub(said, 1, 1) == '/'
  end
  for seq in pairs(set) do
    local id = not others[seq] and redis.call('ZRANGE', KEYS[2], seq, seq, 'BYSCORE')[1]
    local role, is_traffic = role_of(id or '')
    if is_traffic then
      local head = seq
      while role == 'tool' or role == 'function' do -- back to the call
        local before = redis.call('ZRANGE', KEYS[2], '(' .. head, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
        if not before[1] then break end
        head, role = tonumber(before[2]), role_of(before[1])
        found[head] = role == 'ai' or role == 'tool' or role == 'function'
      end
      local low, is_done = '(' .. as_integer(seq), false
      while not is_done do -- on to the last result
        local after = redis.call('ZRANGE', KEYS[2], low, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
        role = after[1] and role_of(after[1])
        is_done = role ~= 'tool' and role ~= 'function'
        if not is_done then
          found[tonumber(after[2])], low = true, '(' .. after[2]
        end
      end
    end
  end
  for seq, is_one in pairs(found) do
    if is_one and not set[seq] and range_with(covered, seq) then set[seq], has_grown = true, true end
  end
  return has_grown
end

-- Adds to a set of covered sequence numbers all that are covered together with one of them.
local function add_tied(set, covered, groups, others)
  repeat
    add_cocited(set, groups)
  until not add_traffic(set, covered, others or {})
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

-- Returns of a log its version; if the caller does not know that, also revision, manifest and then number and value of each
-- observation of the manifest whose number is at least `known_next`.
local function read_log(key, known_version, known_next)
  local version, revision, present = unpack(redis.call('HMGET', key, 'version', 'revision', 'present'))
  if not version or version == known_version then return {version or '0'} end
  if string.match(version, '^%d+') ~= string.match(known_version, '^%d+') then known_next = 0 end -- a log made anew
  local reply, names = {version, revision, present}, {}
  for numbers in string.gmatch(present, '[^/;]+/[^/;]*/([^/;]*)/%d+') do
    for _, range in ipairs(parse_ranges(numbers)) do
      for number = math.max(range[1], known_next), range[2] do names[#names + 1] = as_integer(number) end
    end
  end
  for start = 1, #names, 1000 do
    local fields = {}
    for at = start, math.min(start + 999, #names) do fields[#fields + 1] = 'o:' .. names[at] end
    for at, value in ipairs(redis.call('HMGET', key, unpack(fields))) do
      reply[#reply + 1] = names[start + at - 1]
      reply[#reply + 1] = value
    end
  end
  return reply
end

-- Returns what changes whenever the messages change that a log covers: the version of the log of a thread, else their ranges.
local function coverage_version()
  local version, covered = unpack(redis.call('HMGET', KEYS[10], 'version', 'covered'))
  return version or covered or ''
end

-- Returns what calls of the models took: counter, number, ...
local function usage_of(key)
  local names = {'calls', 'input_tokens', 'output_tokens', 'failures', 'last_error'}
  local reply = {}
  for at, value in ipairs(redis.call('HMGET', key, unpack(names))) do
    reply[2 * at - 1], reply[2 * at] = names[at], value or ''
  end
  return reply
end

-- Returns when and by what the present revision of a log was made.
local function made_of(key)
  local revision = redis.call('HGET', key, 'revision')
  local origin, at = string.match(revision and redis.call('HGET', key, 'rev:' .. revision) or '', '^(%w*)|(%d*)|')
  return {at or '', origin or ''}
end
