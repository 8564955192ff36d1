-- Goes after prelude.lua, lines.lua and view.lua, before the scripts that change a log.

-- Returns where the lease of the observer and its usage stand: beside the log of a thread, or with three KEYS with those of a user.
local function lease_key()
  return #KEYS == 3 and KEYS[2] or KEYS[12]
end

-- Returns an error reply if that must not be written.
local function log_refusal(user)
  if #KEYS == 3 then
    local tombstone = redis.call('GET', KEYS[1])
    return tombstone and redis.error_reply('WMDELETED ' .. tombstone)
  end
  if redis.call('EXISTS', KEYS[1]) == 0 then return redis.error_reply('WMNOTHREAD') end
  return wrong_owner(user)
end

-- Gives a log a new version: <when the log was made, us>-<number>. Readers keep what the present revision of a log
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

-- Stores a line under a new number. A line that stands for parts is a link to them.
local function add_line(number, value)
  number = tonumber(number)
  local name = as_integer(number)
  redis.call('HSET', KEYS[12], 'o:' .. name, value)
  lines[number] = nil
  local line = line_of(number)
  if line.parts ~= '' then
    redis.call('HSET', KEYS[12], 'linked', 1)
    for _, range in ipairs(parse_ranges(line.parts)) do
      for part = range[1], range[2] do
        local field = 'up:' .. as_integer(part)
        local up = redis.call('HGET', KEYS[12], field)
        redis.call('HSET', KEYS[12], field, (up and up .. ',' or '') .. name)
      end
    end
    return
  end
  local first, last, spans = math.huge, 0, {}
  for _, seq in ipairs(seqs_in(line.seqs)) do
    first, last, spans[math.floor(seq / SPAN)] = math.min(first, seq), math.max(last, seq), true
  end
  local entry = name .. ':' .. as_integer(first) .. '-' .. as_integer(last) .. ';'
  for span in pairs(spans) do
    local field = 'at:' .. as_integer(span)
    redis.call('HSET', KEYS[12], field, (redis.call('HGET', KEYS[12], field) or '') .. entry)
  end
end

-- Returns the id of a message on any branch, its tokens and its time, and whether it is on the current branch; nothing if it is gone.
local function message_at(seq)
  local name = as_integer(seq)
  local current = redis.call('ZRANGE', KEYS[2], name, name, 'BYSCORE')[1]
  local id = current or redis.call('ZRANGE', KEYS[7], name, name, 'BYSCORE')[1]
  local at, _, _, _, said = string.match(id and redis.call('HGET', KEYS[3], id) or '', HEADER)
  if at then return id, tonumber(string.match(said, '^%w*/(%d+)')), at, current ~= nil end
end

-- Deletes the lines of a set.
local function drop_lines(set)
  local numbers, spans = {}, {}
  for number in pairs(set) do numbers[#numbers + 1] = number end
  load_lines(numbers)
  for _, number in ipairs(numbers) do
    local line, name = lines[number], as_integer(number)
    if line then
      if line.parts == '' then
        for _, seq in ipairs(seqs_in(line.seqs)) do
          local span = math.floor(seq / SPAN)
          spans[span] = spans[span] or {}
          spans[span][name] = true
        end
      end
      redis.call('HDEL', KEYS[12], 'o:' .. name)
      lines[number] = false
    end
  end
  for span, gone in pairs(spans) do
    local field = 'at:' .. as_integer(span)
    local left = string.gsub(redis.call('HGET', KEYS[12], field) or '', '(%d+):[^;]*;', function(name)
      return gone[name] and '' or nil
    end)
    if left == '' then redis.call('HDEL', KEYS[12], field) else redis.call('HSET', KEYS[12], field, left) end
  end
end

-- Deletes lines that the manifest does not list any more, unless other lines stand for them; and their parts likewise.
local function release(numbers)
  local waiting, dropped, listed = {}, {}, listed_in(redis.call('HGET', KEYS[12], 'present'))
  for _, range in ipairs(numbers) do
    for number = range[1], range[2] do waiting[#waiting + 1] = number end
  end
  while #waiting > 0 do
    local number = table.remove(waiting)
    local name = as_integer(number)
    if not dropped[number] and redis.call('HEXISTS', KEYS[12], 'up:' .. name) == 0 and not range_with(listed, number) then
      dropped[number] = true
      for _, range in ipairs(line_of(number) and parse_ranges(line_of(number).parts) or {}) do
        for part = range[1], range[2] do
          local field, left = 'up:' .. as_integer(part), {}
          for up in string.gmatch(redis.call('HGET', KEYS[12], field) or '', '%d+') do
            if up ~= name then left[#left + 1] = up end
          end
          if #left > 0 then redis.call('HSET', KEYS[12], field, table.concat(left, ',')) else redis.call('HDEL', KEYS[12], field) end
          waiting[#waiting + 1] = part
        end
      end
    end
  end
  drop_lines(dropped)
end

-- Gives a log a manifest. Lines that nothing names any more go.
local function write_revision(key, manifest, origin)
  local before = redis.call('HGET', key, 'present')
  redis.call('HINCRBY', key, 'revision', 1)
  redis.call('HSET', key, 'present', manifest, 'made', origin .. '|' .. as_integer(now()))
  raise_version(key)
  if before and string.sub(manifest, 1, #before) ~= before then
    release(subtract_ranges(listed_in(before), listed_in(manifest)))
  end
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
