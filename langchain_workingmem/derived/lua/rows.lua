-- Derived rows: what a model has made of messages, such as a line of a log. Goes between common.lua and changing.lua.
-- KEYS  9 rows (HASH): r:<id> the head of a row, b:<id> its body, which never changes; `next` the last id; `table` the seqs between which
--       each row lies; of each kind shown:<kind> ids of the rows that are shown, covered:<kind> what they cover, epoch:<kind>, ahead:<kind>
-- A head is JSON: kind, cites, covers (ranges of seqs), number (of messages that it cites), active, shown, replaces (ranges of ids), by
-- (the row that replaced it).
-- Always: a row is shown if it is active, all that it cites is current, and the row that replaced it is not shown. Rows of a kind that are
-- shown cover different messages. A row that cites or covers a message goes when that is deleted or edited; one that cites nothing
-- only covers it no more, nor what the rows of its kind have cited that go.
local ROWS = KEYS[9]

-- Ranges are written 1-5,9-9. Adds up the first list, and takes the second away: a number is in the result if it stands in more ranges of
-- the first than of the second.
local function combine(first, second)
  local edges, result, depth, began = {}, {}, 0, nil
  for weight = 1, -1, -2 do
    for low, high in string.gmatch(weight == 1 and first or second, '(%d+)-(%d+)') do
      edges[#edges + 1] = {tonumber(low), weight}
      edges[#edges + 1] = {high + 1, -weight}
    end
  end
  table.sort(edges, function(one, other) return one[1] < other[1] end)
  for at, edge in ipairs(edges) do
    depth = depth + edge[2]
    if not edges[at + 1] or edges[at + 1][1] > edge[1] then
      if began and depth <= 0 then result[#result + 1] = whole(began) .. '-' .. whole(edge[1] - 1) end
      began = depth > 0 and (began or edge[1]) or nil
    end
  end
  return table.concat(result, ',')
end

local function numbers_in(ranges)
  local numbers = {}
  for low, high in string.gmatch(ranges, '(%d+)-(%d+)') do
    for number = low, high do numbers[#numbers + 1] = number end
  end
  return numbers
end

local function count_in(key, ranges)
  local number = 0
  for low, high in string.gmatch(ranges, '(%d+)-(%d+)') do number = number + redis.call('ZCOUNT', key, low, high) end
  return number
end

local function is_current(row) return count_in(KEYS[2], row.cites) == row.number end

local loaded = {} -- heads by id
local function row_of(id)
  id = tonumber(id)
  local stored = loaded[id] == nil and redis.call('HGET', ROWS, 'r:' .. whole(id))
  if stored then loaded[id] = cjson.decode(stored) end
  return loaded[id]
end

local function write_row(row)
  loaded[row.id] = row
  redis.call('HSET', ROWS, 'r:' .. whole(row.id), cjson.encode(row))
end

-- Returns whether one of the pairs, which rise, meets the numbers from low to high.
local function meets(pairs_of, low, high)
  local first, last = 1, #pairs_of + 1
  while first < last do
    local middle = math.floor((first + last) / 2)
    if pairs_of[middle][2] < low then first = middle + 1 else last = middle end
  end
  return pairs_of[first] ~= nil and pairs_of[first][1] <= high
end

-- Where each row lies: id, first and last seq.
local places, furthest, has_moved = nil, -1, false -- furthest: the last seq of all
local function places_of_rows()
  if not places then
    places = {}
    for id, low, high in string.gmatch(redis.call('HGET', ROWS, 'table') or '', '(%d+):(%d+)-(%d+)') do
      places[#places + 1] = {tonumber(id), tonumber(low), tonumber(high)}
      furthest = math.max(furthest, high)
    end
  end
  return places
end

-- Returns the rows that cite or cover a message in these ranges (`by_cover`: that cover one), the oldest first.
local function rows_at(ranges, by_cover)
  local wanted, found = {}, {}
  if ranges == '' then return found end
  for low, high in string.gmatch(combine(ranges, ''), '(%d+)-(%d+)') do wanted[#wanted + 1] = {tonumber(low), tonumber(high)} end
  local least, most, all = wanted[1][1], wanted[#wanted][2], places_of_rows()
  for _, place in ipairs(least <= furthest and all or {}) do
    local row = place[3] >= least and place[2] <= most and meets(wanted, place[2], place[3]) and row_of(place[1])
    for from, to in string.gmatch(row and (by_cover and '' or row.cites .. ',') .. row.covers or '', '(%d+)-(%d+)') do
      if meets(wanted, tonumber(from), tonumber(to)) then found[#found + 1] = row break end
    end
  end
  return found
end

-- Writes what is shown and covered now. A reader keeps the bodies of an epoch: in it rows come only at the end.
local changes = {} -- by kind: [true] ids and covers of rows that have come into sight, [false] of those that are hidden now; is_other
local function changes_of(kind)
  changes[kind] = changes[kind] or {[true] = {'', ''}, [false] = {'', ''}}
  return changes[kind]
end

local function write_views()
  for kind, change in pairs(changes) do
    local shown, covered, epoch = unpack(redis.call('HMGET', ROWS, 'shown:' .. kind, 'covered:' .. kind, 'epoch:' .. kind))
    local ids = combine((shown or '') .. change[true][1], change[false][1])
    local last = string.match(shown or '', '(%d+)$') or 0
    if not epoch or change.is_other or combine(ids, whole(last + 1) .. '-' .. whole(2 ^ 50)) ~= (shown or '') then
      local time = redis.call('TIME')
      redis.call('HSET', ROWS, 'epoch:' .. kind, whole(math.max(time[1] * 1000000 + time[2], (epoch or 0) + 1)))
    end
    redis.call('HSET', ROWS, 'shown:' .. kind, ids, 'covered:' .. kind, combine((covered or '') .. change[true][2], change[false][2]))
  end
  if has_moved then
    local written = {}
    for _, place in ipairs(places) do
      if loaded[place[1]] ~= false then written[#written + 1] = whole(place[1]) .. ':' .. whole(place[2]) .. '-' .. whole(place[3]) end
    end
    redis.call('HSET', ROWS, 'table', table.concat(written, ','))
  end
  changes, has_moved = {}, false
end

-- Shows or hides a row, and those that it replaced.
local function refresh(row)
  local above, was_shown = row.by and row_of(row.by), row.shown
  row.shown = row.active and is_current(row) and not (above and above.shown)
  write_row(row)
  if row.shown == was_shown then return end
  local change = changes_of(row.kind)[row.shown]
  change[1], change[2] = change[1] .. ',' .. whole(row.id) .. '-' .. whole(row.id), change[2] .. ',' .. row.covers
  for _, id in ipairs(numbers_in(row.replaces)) do
    if row_of(id) and row_of(id).by == row.id then refresh(row_of(id)) end
  end
end

local function forget_row(row)
  places_of_rows()
  loaded[row.id], has_moved = false, true
  redis.call('HDEL', ROWS, 'r:' .. whole(row.id), 'b:' .. whole(row.id))
end

-- Deletes a row; those that it replaced are shown again.
local function drop_row(row)
  row.active = false
  refresh(row)
  forget_row(row)
end

-- Takes messages out of what a row covers.
local function shrink_row(row, ranges)
  local left, change = combine(row.covers, ranges), changes_of(row.kind)
  if left == row.covers then return end
  if row.shown then change[false][2], change.is_other = change[false][2] .. ',' .. combine(row.covers, left), true end
  row.covers = left
  write_row(row)
end

-- Brings rows in line with messages that were deleted or edited (`is_gone`), or have become current or superseded.
local function change_rows(seqs, is_gone)
  if #seqs == 0 or redis.call('EXISTS', ROWS) == 0 then return end
  for at, seq in ipairs(seqs) do seqs[at] = seq .. '-' .. seq end
  local ranges, freed = table.concat(seqs, ','), {}
  local all = ranges
  for _, row in ipairs(rows_at(ranges)) do
    if not is_gone then
      refresh(row)
    elseif row.number > 0 then -- what it cites may be read again
      freed[row.kind], all = (freed[row.kind] or '') .. ',' .. row.cites, all .. ',' .. row.cites
      drop_row(row)
    end
  end
  for _, row in ipairs(is_gone and rows_at(all, true) or {}) do
    if row.number == 0 then shrink_row(row, ranges .. (freed[row.kind] or '')) end
  end
  write_views()
end
