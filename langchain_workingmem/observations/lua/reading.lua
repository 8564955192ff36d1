-- Goes after header.lua and ranges.lua, before the scripts that read a log.
-- A log is a HASH: `present` is its manifest, `o:<number>` one observation. A manifest lists chunks, joined by `;`:
--   <thread as a tag>/<sequence numbers that it covers>/<numbers of its observations>/<level>
-- An observation is <id>|<tag>:<seq>,<seq>;<tag>:<seq>|<JSON>.

-- Returns the messages that a manifest covers, and the numbers of the observations that it lists, both as ranges in its order.
local function ranges_in(manifest)
  local seqs, numbers = {}, {}
  for own, listed in string.gmatch(manifest or '', '[^/;]+/([^/;]*)/([^/;]*)/%d+') do
    seqs[#seqs + 1], numbers[#numbers + 1] = own, listed
  end
  return parse_ranges(table.concat(seqs, ',')), parse_ranges(table.concat(numbers, ','))
end

-- Returns what a log covers on the current branch.
local function shown_ranges(key)
  local covered, hidden = unpack(redis.call('HMGET', key, 'covered', 'hidden'))
  return subtract_ranges(parse_ranges(covered), parse_ranges(hidden))
end

-- Returns of a log its version; if the caller does not know that, also revision, manifest and then number and value of each
-- observation of the manifest whose number is at least `known_next`.
local function read_log(key, known_version, known_next)
  local version, revision, present = unpack(redis.call('HMGET', key, 'version', 'revision', 'present'))
  if not version or version == known_version then return {version or '0'} end
  if string.match(version, '^%d+') ~= string.match(known_version, '^%d+') then known_next = 0 end -- a log made anew
  local reply, names = {version, revision, present}, {}
  for _, range in ipairs(select(2, ranges_in(present))) do
    for number = math.max(range[1], known_next), range[2] do names[#names + 1] = as_integer(number) end
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

-- Returns the version of the log of a thread, which changes whenever the messages change that it covers.
local function coverage_version()
  return redis.call('HGET', KEYS[12], 'version') or ''
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
  local origin, at = string.match(redis.call('HGET', key, 'made') or '', '^(%w*)|(%d*)$')
  return {at or '', origin or ''}
end

-- Reads what the log of a user shows of one thread: <tag>, what is hidden, what is covered on the current branch, what read_log returns,
-- when and by what its present revision was made, the title of the thread and a digest of it. Only the tag as a string if the caller
-- knows that; as a list without a thread of this owner, or a log for all of a user's threads; nil if the thread is on another node of
-- a cluster.
local function read_part(tag, thread_key, log_key, user, known_version, known_next, known_hidden, known_digest)
  local thread = redis.pcall('HMGET', thread_key, 'user', 'title')
  if thread.err then return nil end
  local owner, title = thread[1], thread[2] or ''
  local scope, hidden, version = unpack(redis.call('HMGET', log_key, 'scope', 'hidden', 'version'))
  if owner ~= user or scope ~= 'u' then return {tag} end
  hidden = hidden or ''
  local digest = title ~= '' and string.sub(redis.sha1hex(title), 1, 8) or ''
  if version == known_version and hidden == known_hidden and digest == known_digest then return tag end
  local log = read_log(log_key, known_version, known_next)
  return {tag, hidden, write_ranges(shown_ranges(log_key)), log, made_of(log_key), title, digest}
end
