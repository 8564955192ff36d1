-- Derived rows: what a model has made of messages, such as a line of a log. Goes between common.lua and changing.lua.
-- KEYS  9 rows (HASH): r:<id> head of a row, b:<id> its body, which never changes; `next` the last id; of each view
--       shown:<view> ids of shown rows, covered:<view> what they cover, revision:<view> <epoch>.<last id>
-- A view is <kind>, or <kind>+ for rows that wait to be activated. A head is JSON: kind, cites, covers (seq ranges),
-- first and last of these, waits, shown, replaces (ids), by (the row that replaced it).
-- Always: a row is shown in its view if all that it cites is current, and the row that replaced it is not shown.
-- Shown rows of a kind cover different messages. A row that cites or covers a message goes when that is deleted or
-- edited; one that cites nothing only covers it no more, nor what the rows of its kind have cited that go.
local ROWS = KEYS[9]
local function get(field) return redis.call('HGET', ROWS, field) end
local function set(...) redis.call('HSET', ROWS, ...) end

-- Ranges are written 1-5,9-9.
local function each_range(ranges) return string.gmatch(ranges, '(%d+)-(%d+)') end
local function range(low, high) return whole(low) .. '-' .. whole(high or low) end

-- The difference of two lists of ranges: what stands in more ranges of the first than of the second.
local function difference(first, second)
  local weights, edges, result, depth, began = {}, {}, {}, 0, nil
  for weight = 1, -1, -2 do
    for low, high in each_range(weight == 1 and first or second) do
      low, high = tonumber(low), high + 1
      weights[low], weights[high] = (weights[low] or 0) + weight, (weights[high] or 0) - weight
    end
  end
  for edge in pairs(weights) do edges[#edges + 1] = edge end
  table.sort(edges)
  for _, edge in ipairs(edges) do
    depth = depth + weights[edge]
    if began and depth <= 0 then result[#result + 1] = range(began, edge - 1) end
    began = depth > 0 and (began or edge) or nil
  end
  return table.concat(result, ',')
end

local heads, last_id
-- Returns the heads of the rows by id.
local function all_heads()
  if heads then return heads end
  local fields = {}
  heads, last_id = {}, tonumber(get('next') or 0)
  for id = 1, last_id do fields[id] = 'r:' .. whole(id) end
  for id, text in ipairs(values_of(ROWS, fields)) do heads[id] = text and cjson.decode(text) or nil end
  return heads
end

local function write_row(row)
  heads[row.id], last_id = row, math.max(last_id, row.id)
  set('r:' .. whole(row.id), cjson.encode(row))
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

-- Returns the rows that cite or cover a message in these ranges (`by_cover`: that cover one), the oldest first.
local function rows_at(ranges, by_cover)
  local wanted, found = {}, {}
  for low, high in each_range(difference(ranges, '')) do wanted[#wanted + 1] = {tonumber(low), tonumber(high)} end
  all_heads()
  for id = 1, last_id do
    local row = heads[id] and meets(wanted, heads[id].first, heads[id].last) and heads[id]
    for low, high in each_range(row and (by_cover and '' or row.cites .. ',') .. row.covers or '') do
      if meets(wanted, tonumber(low), tonumber(high)) then found[#found + 1] = row break end
    end
  end
  return found
end

local changes = {} -- by view: [true] ids and covers of what comes into sight, [false] of what is hidden
local function change_view(row, is_shown, id, covers)
  local view = row.kind .. (row.waits and '+' or '')
  changes[view] = changes[view] or {[true] = {'', ''}, [false] = {'', ''}}
  local change = changes[view][is_shown]
  change[1], change[2] = change[1] .. ',' .. id, change[2] .. ',' .. covers
end

-- Writes what is shown and covered now. A reader keeps the bodies of an epoch: in it rows come only at the end.
local function write_views()
  for view, change in pairs(changes) do
    local shown, covered = get('shown:' .. view) or '', get('covered:' .. view) or ''
    local epoch, last = string.match(get('revision:' .. view) or '0.0', '(%d+).(%d+)')
    local ids = difference(shown .. change[true][1], change[false][1])
    local only_appended = ids ~= shown and difference(ids, range(last + 1, 2 ^ 50)) == shown
    if epoch == '0' or not only_appended then
      local time = redis.call('TIME')
      epoch = whole(math.max(time[1] * 1000000 + time[2], epoch + 1))
    end
    set('shown:' .. view, ids, 'covered:' .. view, difference(covered .. change[true][2], change[false][2]),
      'revision:' .. view, epoch .. '.' .. (string.match(ids, '%d+$') or 0))
  end
  changes = {}
end

-- Shows or hides a row, and those that it replaced. `goes`: it is hidden in any case.
local function refresh(row, goes)
  local above, was_shown = heads[row.by], row.shown
  row.shown = not goes and not (above and above.shown)
  for low, high in each_range(row.cites) do row.shown = row.shown and redis.call('ZCOUNT', KEYS[3], low, high) == 0 end
  write_row(row)
  if row.shown == was_shown then return end
  change_view(row, row.shown, range(row.id), row.covers)
  for _, id in ipairs(row.replaces) do
    if heads[id] then refresh(heads[id]) end
  end
end

-- Deletes a row; those that it replaced are shown again.
local function drop_row(row)
  refresh(row, true)
  heads[row.id] = nil
  redis.call('HDEL', ROWS, 'r:' .. whole(row.id), 'b:' .. whole(row.id))
end

-- Brings rows in line with messages that were deleted or edited (`is_gone`), or have become current or superseded.
local function change_rows(seqs, is_gone)
  if #seqs == 0 or redis.call('EXISTS', ROWS) == 0 then return end
  for at, seq in ipairs(seqs) do seqs[at] = range(seq) end
  local ranges, freed = table.concat(seqs, ','), {}
  local all = ranges
  for _, row in ipairs(rows_at(ranges)) do
    if not is_gone then
      refresh(row)
    elseif row.cites ~= '' then -- what it cites may be read again
      freed[row.kind], all = (freed[row.kind] or ranges) .. ',' .. row.cites, all .. ',' .. row.cites
      drop_row(row)
    end
  end
  for _, row in ipairs(is_gone and rows_at(all, true) or {}) do
    local left = difference(row.covers, freed[row.kind] or ranges)
    if row.cites == '' and left ~= row.covers then
      if row.shown then change_view(row, false, '', difference(row.covers, left)) end
      row.covers = left
      write_row(row)
    end
  end
  write_views()
end
