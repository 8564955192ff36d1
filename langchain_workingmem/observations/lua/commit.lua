-- Covers messages by observations, in one atomic step.
-- ARGV  resource or '', scope, name of this commit (the same when it is sent again), number of the last observation when the run
--       read the messages, number of messages, then id, seq and digest of the body of each; number of observations, then for each
--       its sequence numbers (12,13), |<sources>|<JSON>, number of fields and values of its document of recall, those; digest of
--       the embedding settings; pairs of a usage counter and a number
-- An observation may also cite what is covered already, by one that it replaces.
-- What was deleted, edited, superseded or covered meanwhile is left out, with the observations that cite it and what they cite
-- beside it: such messages stay raw.
-- Reply number of messages that are covered, of observations that are kept, what renew_ttl returns, coverage_version; WMOWNER,
--       WMNOTHREAD, WMSCOPE.
local refusal = log_refusal(ARGV[1])
if refusal then return refusal end
check_key_types()

-- Puts a chunk into a manifest: at the end, but before what follows it and was written by a call beside this one.
local function with_chunk(manifest, chunk, first, last_number)
  local chunks, at = {}, nil
  for one in string.gmatch(manifest, '[^;]+') do chunks[#chunks + 1] = one end
  for number = #chunks, 1, -1 do
    local begins, listed = string.match(chunks[number], '^[^/]*/(%d+)[^/]*/(%d+)')
    if not begins or tonumber(begins) < first or tonumber(listed) <= last_number then break end
    at = number
  end
  table.insert(chunks, at or #chunks + 1, chunk)
  return table.concat(chunks, ';')
end

local scope = ARGV[2]
local stored_scope, all = unpack(redis.call('HMGET', KEYS[12], 'scope', 'covered'))
if stored_scope and stored_scope ~= scope then return redis.error_reply('WMSCOPE ' .. stored_scope) end
all = parse_ranges(all)
local covered = observed_ranges()

local function names_of_commits() return redis.call('HGET', KEYS[12], 'commit') or '' end
if string.find(names_of_commits(), ARGV[3], 1, true) then -- its reply was lost
  return {tonumber(ARGV[5]), 0, renew_ttl(), coverage_version()}
end
local argument = 6
local given, lost = {}, {}
for _ = 1, tonumber(ARGV[5]) do
  local id, seq, digest = ARGV[argument], tonumber(ARGV[argument + 1]), ARGV[argument + 2]
  local value = tonumber(redis.call('ZSCORE', KEYS[2], id) or -1) == seq and redis.call('HGET', KEYS[3], id)
  local rest = value and select(7, string.match(value, HEADER))
  given[seq] = true
  if not rest or redis.sha1hex(string.sub(value, rest)) ~= digest or range_with(covered, seq) then lost[seq] = true end
  argument = argument + 3
end
local cited, observations = {}, {}
local last = argument
for _ = 1, tonumber(ARGV[argument]) do
  local at = last + 1
  last = at + 2 + ARGV[at + 2]
  observations[#observations + 1] = {seqs = ARGV[at], value = ARGV[at + 1], first = at + 3, last = last}
  if string.find(ARGV[at], ',', 1, true) then cited[#cited + 1] = ARGV[at] end
  for seq in string.gmatch(ARGV[at], '%d+') do -- what a replaced line cites is covered, unless it was deleted meanwhile
    seq = tonumber(seq)
    if not given[seq] and not (range_with(covered, seq) and redis.call('ZRANGE', KEYS[2], seq, seq, 'BYSCORE')[1]) then
      lost[seq] = true
    end
  end
end
last = last + 1
local digest = ARGV[last]
if next(lost) then add_tied(lost, ranges_of(given), table.concat(cited, ';')) end
for seq in pairs(lost) do given[seq] = nil end
local kept = {}
for _, observation in ipairs(observations) do
  if not lost[tonumber(string.match(observation.seqs, '^%d+'))] then kept[#kept + 1] = observation end
end
local more, again = ranges_of(given), {}
for seq in pairs(given) do -- what was cited together with messages of another branch, or by a bare line, is observed anew: the old lines go
  if range_with(all, seq) then again[#again + 1] = seq end
end
if #again > 0 then
  reopen(again)
  refresh_hidden()
end
if #more > 0 then
  local present = redis.call('HGET', KEYS[12], 'present')
  redis.call('HSET', KEYS[12], 'scope', scope)
  redis.call('HDEL', KEYS[1], 'pending')
  redis.call('HSET', KEYS[1], 'covered', 1)
  local number = redis.call('HINCRBY', KEYS[12], 'next', #kept) - #kept + 1
  local numbers = #kept > 0 and {{number, number + #kept - 1}} or {}
  local chunk = thread_tag() .. '/' .. write_ranges(more) .. '/' .. write_ranges(numbers) .. '/0'
  local manifest = with_chunk(present or '', chunk, more[1][1], tonumber(ARGV[4]))
  local names = string.sub(names_of_commits(), -400) -- of calls that go on at once
  write_revision(KEYS[12], manifest, 'observe')
  redis.call('HSET', KEYS[12], 'commit', names .. ';' .. ARGV[3])
  for at, observation in ipairs(kept) do
    local id = as_integer(number + at - 1)
    local seqs, value = add_observed(id, id .. observation.value)
    if observation.last > observation.first then
      write_document(seqs, value, digest, observation.first, observation.last)
    end
  end
  cover(manifest)
  local tried = parse_tried()
  if #tried > 0 then write_tried(tried) end
end
if scope == 't' then
  add_usage(KEYS[12], last + 1, #ARGV)
  redis.call('HDEL', KEYS[12], 'streak', 'pause_until')
end
local count = 0
for _ in pairs(given) do count = count + 1 end
return {count, #more > 0 and #kept or 0, renew_ttl(), coverage_version()}
