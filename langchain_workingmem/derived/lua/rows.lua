-- Derived rows: what a model has made of messages, such as a line of a log. Goes after common.lua.
-- KEYS  9 rows (HASH): `heads` (JSON) of all rows; b:<id> body of one, which never changes; `next` last id; `version`
--       counts changes; of each view shown:<view> ids of shown rows, covered:<view> what they cover, revision:<view>
--       <epoch>.<last id>. A view is <kind>, or <kind>+ for rows that wait to be activated.
-- A head has: id, kind, cites, covers (seqs), waits, by (the row that replaced it). Ranges are lists: [1, 5, 9, 9].
-- Always: a row is shown in its view if all that it cites is current, and the row that replaced it is not shown.
-- Shown rows of a kind cover different messages. If a message is deleted or edited, the rows that cite or cover it go.
-- But a row that cites nothing stays: it covers that message no more, nor what the rows of its kind that go have cited,
-- so that workers read these again.
-- Workers add and replace rows (`commit` in derived/__init__.py); here rows follow their messages.
local ROWS = KEYS[9]
local function get(field) return redis.call('HGET', ROWS, field) end
local function set(...) redis.call('HSET', ROWS, ...) end

-- Returns what stands in more ranges of the first list than of the second; with an empty one the first, joined.
local function difference(first, second)
  local weights, edges, result, depth, began = {}, {}, {}, 0, nil
  for weight, ranges in pairs({[1] = first, [-1] = second}) do
    for at = 1, #ranges, 2 do
      local low, high = ranges[at], ranges[at + 1] + 1
      weights[low], weights[high] = (weights[low] or 0) + weight, (weights[high] or 0) - weight
    end
  end
  for edge in pairs(weights) do edges[#edges + 1] = edge end
  table.sort(edges)
  for _, edge in ipairs(edges) do
    depth = depth + weights[edge]
    if began and depth <= 0 then add(result, {began, edge - 1}) end
    began = depth > 0 and (began or edge) or nil
  end
  return result
end

-- Returns whether ranges hold one of the seqs, which rise.
local function holds(ranges, seqs)
  for at = 1, #ranges, 2 do
    local first, last = 1, #seqs + 1
    while first < last do
      local middle = math.floor((first + last) / 2)
      if seqs[middle] < ranges[at] then first = middle + 1 else last = middle end
    end
    if seqs[first] and seqs[first] <= ranges[at + 1] then return true end
  end
  return false
end

-- Writes all rows, and what the views of some kinds show now. Within an epoch rows come only at the end, so readers
-- keep the bodies that they know.
local function write_rows(rows, kinds)
  local by_id, views, is_all_current = {}, {}, redis.call('EXISTS', KEYS[3]) == 0
  for _, row in ipairs(rows) do by_id[row.id] = row end
  local function is_shown(row)
    local above = by_id[row.by]
    if above and is_shown(above) then return false end
    for at = 1, is_all_current and 0 or #row.cites, 2 do
      if redis.call('ZCOUNT', KEYS[3], row.cites[at], row.cites[at + 1]) > 0 then return false end
    end
    return true
  end
  for kind in pairs(kinds) do views[kind], views[kind .. '+'] = {ids = {}, covers = {}}, {ids = {}, covers = {}} end
  for _, row in ipairs(rows) do
    local view = views[row.kind .. (row.waits and '+' or '')]
    if view and is_shown(row) then
      add(view.ids, {row.id, row.id})
      add(view.covers, row.covers)
    end
  end
  set('heads', cjson.encode(rows))
  redis.call('HINCRBY', ROWS, 'version', 1)
  for name, view in pairs(views) do
    local shown, covered = difference(view.ids, {}), cjson.encode(difference(view.covers, {}))
    local ids, old_ids = cjson.encode(shown), get('shown:' .. name) or '{}' -- as cjson writes an empty list
    if ids ~= old_ids or covered ~= (get('covered:' .. name) or '{}') then
      local epoch, last = string.match(get('revision:' .. name) or '0.0', '^(%d+)%.(%d+)$')
      local only_appended = ids ~= old_ids and cjson.encode(difference(shown, {last + 1, 2 ^ 50})) == old_ids
      if epoch == '0' or not only_appended then epoch = whole(math.max(now, epoch + 1)) end
      local revision = epoch .. '.' .. whole(shown[#shown] or 0)
      set('shown:' .. name, ids, 'covered:' .. name, covered, 'revision:' .. name, revision)
    end
  end
end

-- Brings rows in line with messages that were deleted or edited (`changed`), or became current or superseded (`moved`).
local function change_rows(changed, moved)
  local heads = #changed + #moved > 0 and get('heads')
  if not heads then return end
  local seqs, rows, freed = {}, {}, {} -- `freed`: what rows of a kind cover no more
  for at, seq in ipairs(changed) do seqs[at] = tonumber(seq) end
  table.sort(seqs)
  for _, row in ipairs(cjson.decode(heads)) do
    freed[row.kind] = freed[row.kind] or {}
    if #row.cites > 0 and (holds(row.cites, seqs) or holds(row.covers, seqs)) then
      add(freed[row.kind], row.cites) -- it may be read again
      redis.call('HDEL', ROWS, 'b:' .. whole(row.id))
    else
      rows[#rows + 1] = row
    end
  end
  for _, ranges in pairs(freed) do for _, seq in ipairs(seqs) do add(ranges, {seq, seq}) end end
  for _, row in ipairs(rows) do
    if #row.cites == 0 then row.covers = difference(row.covers, freed[row.kind]) end
  end
  write_rows(rows, freed)
end
