-- Covers messages by observations, in one atomic step.
-- ARGV  user or '', scope, name of this commit (the same when it is sent again), tokens at which what is read ahead is shown ('': it is shown at once), number of messages, then id, seq
--       and digest of the body of each; number of observations, then for each its sequence numbers (12,13) and
--       |<sources>|<JSON>; pairs of a usage counter and a number
-- What was deleted, edited, superseded or covered meanwhile is left out, with the observations that cite it and what they cite
-- beside it: such messages stay raw.
-- Reply number of messages that are covered, of observations that are kept, what renew_ttl returns, coverage_version; WMOWNER, WMNOTHREAD, WMSCOPE.
local refusal = log_refusal(ARGV[1])
if refusal then return refusal end
check_key_types()

local scope = ARGV[2]
local stored_scope, all = unpack(redis.call('HMGET', KEYS[12], 'scope', 'covered'))
if stored_scope and stored_scope ~= scope then return redis.error_reply('WMSCOPE ' .. stored_scope) end
all = parse_ranges(all)
local covered = shown_ranges(KEYS[12])

local function names_of_commits() return redis.call('HGET', KEYS[12], 'commit') or '' end
if string.find(names_of_commits(), ARGV[3], 1, true) then -- its reply was lost
  return {tonumber(ARGV[5]), 0, renew_ttl(), coverage_version()}
end
local argument = 6
local given, lost, weights, read_ahead = {}, {}, {}, ahead.ranges()
for _ = 1, tonumber(ARGV[5]) do
  local id, seq, digest = ARGV[argument], tonumber(ARGV[argument + 1]), ARGV[argument + 2]
  local value = tonumber(redis.call('ZSCORE', KEYS[2], id) or -1) == seq and redis.call('HGET', KEYS[3], id)
  local said, _, rest = select(5, string.match(value or '', HEADER))
  given[seq], weights[seq] = true, tonumber(string.match(said or '', '^%w*/(%d+)') or 0)
  if not rest or redis.sha1hex(string.sub(value, rest)) ~= digest or range_with(covered, seq) or range_with(read_ahead, seq) then
    lost[seq] = true
  end
  argument = argument + 3
end
local cited, observations = {}, {}
local last = argument
for _ = 1, tonumber(ARGV[argument]) do
  local at = last + 1
  last = at + 1
  observations[#observations + 1] = {seqs = ARGV[at], value = ARGV[at + 1]}
  if string.find(ARGV[at], ',', 1, true) then cited[#cited + 1] = ARGV[at] end
end
if next(lost) then add_tied(lost, ranges_of(given), table.concat(cited, ';')) end
for seq in pairs(lost) do given[seq] = nil end
local kept = {}
for _, observation in ipairs(observations) do
  if not lost[tonumber(string.match(observation.seqs, '^%d+'))] then kept[#kept + 1] = observation end
end
local more, again = ranges_of(given), {}
for seq in pairs(given) do -- what was cited together with messages of another branch is observed anew: the old lines go
  if range_with(all, seq) then again[#again + 1] = seq end
end
if #again > 0 then
  reopen(again)
  refresh_hidden()
end
local limit = #again == 0 and tonumber(ARGV[4]) -- else they would be raw until it is shown
if #more > 0 then
  redis.call('HSET', KEYS[12], 'scope', scope)
  redis.call('HSET', KEYS[1], 'covered', 1)
  local names = string.sub(names_of_commits(), -400) .. ';' .. ARGV[3]
  if limit then
    local values, tokens, entries = {}, 0, ahead.entries()
    for at, observation in ipairs(kept) do values[at] = observation.value end
    for seq in pairs(given) do tokens = tokens + weights[seq] end
    local number = (#entries > 0 and entries[#entries].number or 0) + 1
    entries[#entries + 1] = {number = number, tokens = tokens, seqs = more}
    ahead.write(entries)
    redis.call('HSET', KEYS[12], 'ahead:' .. as_integer(number), table.concat(values, '\n'))
    if ahead.pending_tokens(scope, limit, 0) >= limit then ahead.activate(limit) end
    redis.call('HSET', KEYS[12], 'commit', names)
  else
    redis.call('HDEL', KEYS[1], 'pending')
    local present = redis.call('HGET', KEYS[12], 'present')
    local number = redis.call('HINCRBY', KEYS[12], 'next', #kept) - #kept + 1
    local numbers = #kept > 0 and {{number, number + #kept - 1}} or {}
    local chunk = thread_tag() .. '/' .. write_ranges(more) .. '/' .. write_ranges(numbers) .. '/0'
    local manifest = present and present ~= '' and present .. ';' .. chunk or chunk
    write_revision(KEYS[12], manifest, 'observe')
    redis.call('HSET', KEYS[12], 'commit', names)
    for at, observation in ipairs(kept) do
      local id = as_integer(number + at - 1)
      add_line(id, id .. observation.value)
    end
    cover(manifest)
  end
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
