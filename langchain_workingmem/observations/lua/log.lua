-- Goes after prelude.lua, ranges.lua and view.lua, before the scripts that change a log.

local REVISIONS = 20 -- that are kept, the present one included

-- Returns where the lease of the observer and its usage stand: beside the log of a thread, or with three KEYS with those of a user.
local function lease_key()
  return #KEYS == 3 and KEYS[2] or KEYS[12]
end

-- Returns an error reply if that must not be written.
local function log_refusal(resource)
  if #KEYS == 3 then
    return redis.call('EXISTS', KEYS[1]) == 1 and redis.error_reply('WMDELETED the resource is being deleted')
  end
  if redis.call('EXISTS', KEYS[1]) == 0 then return redis.error_reply('WMNOTHREAD') end
  return wrong_owner(resource)
end

-- Gives a log a new version: <when the log was made or reverted, us>-<number>. Readers keep what the present revision of a log
-- lists, and a log that was deleted and made again has the same numbers for other observations.
local function raise_version(key)
  redis.call('HDEL', key, 'commit') -- so no later commit is taken for that one
  local born, number = string.match(redis.call('HGET', key, 'version') or as_integer(now()) .. '-0', '(%d+)-(%d+)')
  redis.call('HSET', key, 'version', born .. '-' .. as_integer(number + 1))
end

-- Returns how many observations a log shows.
local function count_observations(key)
  local count = 0
  local _, numbers = ranges_in(redis.call('HGET', key, 'present'))
  for _, range in ipairs(numbers) do count = count + range[2] - range[1] + 1 end
  return count
end

-- Makes a manifest the present revision. Revisions that are too many go, with the observations that no other one lists.
local function write_revision(key, manifest, origin)
  local revision = redis.call('HINCRBY', key, 'revision', 1)
  redis.call('HSET', key, 'present', manifest, 'rev:' .. revision,
    origin .. '|' .. as_integer(now()) .. '|' .. manifest)
  raise_version(key)
  local dropped = redis.call('HGET', key, 'rev:' .. revision - REVISIONS)
  if not dropped then return end
  redis.call('HDEL', key, 'rev:' .. revision - REVISIONS)
  local gone = join_ranges(select(2, ranges_in(dropped)))
  for number = revision - REVISIONS + 1, revision do
    local _, kept = ranges_in(redis.call('HGET', key, 'rev:' .. number))
    gone = subtract_ranges(gone, join_ranges(kept))
  end
  for _, range in ipairs(gone) do
    for number = range[1], range[2] do redis.call('HDEL', key, 'o:' .. as_integer(number)) end
  end
end

-- Deletes each observation that cites a message of `out`, in all revisions, and takes `out` out of what they cover.
local function purge_log(key, out)
  local fields, purged, lost_before = redis.call('HGETALL', key), {}, {}
  for at = 1, #fields, 2 do
    local number = string.match(fields[at], '^o:(%d+)$')
    local sources = number and string.match(fields[at + 1], '^[^|]*|[^:|]*:([%d,]*)|')
    local own, is_hit = {}, false
    for seq in string.gmatch(sources or '', '%d+') do
      own[#own + 1] = tonumber(seq)
      is_hit = is_hit or range_with(out, tonumber(seq))
    end
    if is_hit then
      purged[tonumber(number)] = true
      redis.call('HDEL', key, fields[at])
      for _, seq in ipairs(own) do lost_before[seq] = true end
    end
  end
  local lost, present = ranges_of(purged), 'rev:' .. (redis.call('HGET', key, 'revision') or '')
  lost_before = add_ranges(ranges_of(lost_before), out) -- in older revisions other messages were cited together
  for at = 1, #fields, 2 do
    local is_present = fields[at] == 'present'
    if is_present or string.sub(fields[at], 1, 4) == 'rev:' then
      local head, manifest = '', fields[at + 1]
      if not is_present then head, manifest = string.match(manifest, '^(.*|)([^|]*)$') end
      local gone = (is_present or fields[at] == present) and out or lost_before
      local chunks = {}
      for tag, seqs, numbers, level in string.gmatch(manifest, '([^/;]+)/([^/;]*)/([^/;]*)/(%d+)') do
        seqs = write_ranges(subtract_ranges(parse_ranges(seqs), gone))
        numbers = write_ranges(subtract_ranges(parse_ranges(numbers), lost))
        if seqs .. numbers ~= '' then chunks[#chunks + 1] = table.concat({tag, seqs, numbers, level}, '/') end
      end
      redis.call('HSET', key, fields[at], head .. table.concat(chunks, ';'))
    end
  end
  raise_version(key)
end

-- Adds what calls of the models took: pairs of a counter and a number, and `last_error` and its text.
local function add_usage(key, first, last)
  for at = first, last, 2 do
    local name, value = ARGV[at], ARGV[at + 1]
    if name == 'last_error' then
      if value ~= '' then redis.call('HSET', key, name, value) end
    elseif tonumber(value) > 0 then
      redis.call('HINCRBY', key, name, value)
    end
  end
end
