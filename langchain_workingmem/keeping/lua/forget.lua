#!lua flags=allow-oom
-- Forgets what messages of a thread say: values without another source go, with the document and the revisions that may hold them.
-- A change of messages calls it before and after; between these calls no keeper takes anything of the messages (`e:<thread>`).
-- ARGV  thread; the same as a tag; 'begin', 'end', or 'release' (the messages stayed as they are); the reply to 'begin', or ''; 'all' or ranges
--       of sequence numbers; 1 if keepers read the messages again; 1 if the thread is gone, 2 if it has another owner; their ids, as
--       far as they are named
-- Reply a name for this change; of a user that is being merged into another one <name>/<that one>, which may have the values by now
local thread, tag, step, name, given, again, is_gone = unpack(ARGV, 1, 7)
local is_there, into = redis.call('EXISTS', KEYS[1]) == 1, nil
if is_there and #KEYS == 3 and is_gone ~= '2' then into = string.match(redis.call('GET', KEYS[1]), '^merge/([^/]*)') end
-- the thread is gone with its values, or the user is being deleted; a merge takes threads along with their values
if is_there ~= (#KEYS > 3) and not into then return '' end
if step ~= 'begin' and redis.call('EXISTS', values_key) == 0 then return '' end -- it was deleted meanwhile
local ABANDONED = 600 * 1000000 -- after that a change that was begun is not continued; what it has begun for others stays
local ranges, ids, is_all = parse_ranges(given), {}, given == 'all'
for at = 8, #ARGV do ids[ARGV[at]] = true end

-- the claims that are gone, when the first of them was recorded, and whether others have lost a message
local gone, earliest, is_less = {}, nil, false
if step ~= 'release' then
  each_citing(function(field, claim)
    local left = {}
    for _, source in ipairs(claim[1]) do
      local is_named = source[1] == thread and (is_all or ids[source[2]] or range_with(ranges, tonumber(source[3])))
      if not is_named then left[#left + 1] = source end
    end
    if #left == 0 then
      local recorded = tonumber(string.match(claim[5], ',(%d+),"%l*",%-?%d+]$'))
      earliest = math.min(earliest or recorded, recorded)
      gone[#gone + 1] = claim
      redis.call('HDEL', values_key, field)
    elseif #left < #claim[1] then
      is_less, claim[1] = true, left
      redis.call('HSET', values_key, field, cjson.encode(claim))
    end
  end)
end

-- Revisions may hold words of claims that the bounds of the history have left out since then (`d:<thread>`).
local from, to, left_out
if step ~= 'release' then
  from, to, left_out = string.match(redis.call('HGET', values_key, 'd:' .. tag) or '', '^(%d+)/(%d+)/(.*)$')
  if from and left_out ~= 'all' and not is_all then
    local others = write_ranges(subtract_ranges(parse_ranges(left_out), ranges))
    if others == left_out then from = nil end
  end
end

-- Removals go, too, of what nothing sets any more at their path or below: the path may hold words of the message.
if earliest then
  local lost, setting, removals = {}, {}, {}
  local function add(set, claim)
    local path = claim[2]
    set[path] = true
    while claim[4] == '' and path ~= '' do -- of a text no value is part of another
      path = string.match(path, '^(.*)/[^/]*$') or ''
      set[path] = true
    end
  end
  for _, claim in ipairs(gone) do if claim[3] == '1' then add(lost, claim) end end
  local fields = redis.call('HGETALL', values_key)
  for at = 1, #fields, 2 do
    if string.sub(fields[at], 1, 2) == 'c:' then
      local claim = cjson.decode(fields[at + 1])
      if claim[3] == '1' then add(setting, claim) else removals[fields[at]] = claim[2] end
    end
  end
  for field, path in pairs(removals) do
    if lost[path] and not setting[path] then redis.call('HDEL', values_key, field) end
  end
end

-- Empties a revision, given as its fields; number, time and origin stay.
local function emptied(row)
  local is_late, is_known = false, false
  for at = 1, #row, 2 do
    local time = row[at] == 'updated_at' and tonumber(row[at + 1])
    is_late = is_late or (time and ((earliest and time >= earliest) or (from and time >= tonumber(from) and time <= tonumber(to))))
    is_known = is_known or row[at] == 'forgotten'
  end
  for at = 1, is_late and #row or 0, 2 do
    if row[at] == 'document' then row[at + 1] = '' end
  end
  if is_late and not is_known then row[#row + 1], row[#row + 2] = 'forgotten', 1 end
  return row
end

if earliest or from then
  local entries, expiry = redis.call('XRANGE', revisions_key, '-', '+'), redis.call('PEXPIRETIME', revisions_key)
  redis.call('UNLINK', revisions_key)
  for _, entry in ipairs(entries) do redis.call('XADD', revisions_key, entry[1], unpack(emptied(entry[2]))) end
  if expiry > 0 then redis.call('PEXPIREAT', revisions_key, expiry) end
end
if earliest then
  drop_document()
elseif is_less and redis.call('HEXISTS', memory_key, 'kept') == 1 then
  redis.call('HSETNX', memory_key, 'stale', 2) -- the document stays
end

local version = raise_version()
if step == 'begin' then name = version end
local entries = {}
for began, what in string.gmatch(redis.call('HGET', values_key, 'e:' .. tag) or '', '(%d+)/([^;]*)') do
  local is_abandoned = what == given and version - began > ABANDONED
  if began ~= name and not is_abandoned then entries[#entries + 1] = began .. '/' .. what end
end
if step == 'begin' then entries[#entries + 1] = name .. '/' .. given end
if #entries > 0 then
  redis.call('HSET', values_key, 'e:' .. tag, table.concat(entries, ';'))
else
  redis.call('HDEL', values_key, 'e:' .. tag)
end
if again == '1' and step ~= 'begin' then
  local read_again = add_ranges(parse_ranges(redis.call('HGET', values_key, 'again:' .. tag)), ranges)
  redis.call('HSET', values_key, 'again:' .. tag, write_ranges(read_again))
end
if is_gone ~= '0' and step == 'end' then redis.call('HDEL', values_key, 'k:' .. tag, 'h:' .. tag, 'again:' .. tag, 'd:' .. tag) end
if redis.call('HLEN', values_key) == 1 and redis.call('HEXISTS', memory_key, 'kept') == 0 then redis.call('UNLINK', values_key) end
if #KEYS > 3 then renew_ttl() end
return into and name .. '/' .. into or name
