-- Reads and changes the rows of a kind, and has the lease of its worker. Goes after rows.lua.
-- ARGV  1 {user, kind, what} and what that says. A reply is a JSON object, and bodies behind it
local kind, owner, created_at, edits = head.kind, unpack(redis.call('HMGET', KEYS[1], 'user', 'created_at', 'edits'))
local state = (created_at or '0') .. ' ' .. (edits or '0')
local time, expiry = redis.call('TIME'), redis.call('PEXPIRETIME', KEYS[1])
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local no = refusal(head.user, owner) or (not owner and head.what ~= 'show' and 'thread')
if no then return {cjson.encode({refused = no}), {}} end

-- Returns the rows that are shown, and bodies of those behind the `revision` that the caller knows.
-- {revision, state (of the thread), ahead (covered by rows that wait), failures, expires (ms), missing_at (ms: there is
--  no thread); since, ids, covered unless the revision is known}
local function show()
  local values = values_of(ROWS, {'revision:' .. kind, 'failures:' .. kind, 'covered:' .. kind .. '+', 'shown:' .. kind,
    'covered:' .. kind})
  local found = {revision = values[1] or '', failures = values[2] or '', ahead = values[3] or '', state = state,
    expires = expiry > 0 and expiry or nil, missing_at = not owner and now or nil}
  if head.revision == found.revision then return {cjson.encode(found), {}} end
  local epoch, since = string.match(head.revision, '^(%d+)%.(%d+)$')
  found.since = epoch and epoch == string.match(found.revision, '^%d+') and tonumber(since) or 0
  found.ids, found.covered = difference(values[4] or '', range(0, found.since)), values[5] or ''
  local fields = {}
  for low, high in each_range(found.ids) do
    for id = low, high do fields[#fields + 1] = 'b:' .. whole(id) end
  end
  return {cjson.encode(found), values_of(ROWS, fields)}
end

-- Gives the lease to `holder` for `ms`, unless another than `token` has it; `force` takes it although there is a pause.
-- `failures`: what is noted of failures until rows are committed.
-- {wait, pause}: ms until it is free, 0 if that is done; whether all pause
local function lease()
  local holder, till = string.match(get('lease:' .. kind) or '', '^(%S+) (%d+)$')
  local is_pause = holder == 'pause'
  if holder and holder ~= head.token and tonumber(till) > now and not (head.force and is_pause) then
    return {wait = till - now, pause = is_pause}
  end
  set('lease:' .. kind, head.holder .. ' ' .. whole(now + head.ms))
  if head.ms == 0 then redis.call('HDEL', ROWS, 'lease:' .. kind) end
  if head.failures then set('failures:' .. kind, head.failures) end
  return {wait = 0}
end

-- Writes seqs as ranges, each up to the next message, so that those of neighbours touch; nothing if a message is gone.
local function ranges_of(seqs)
  local parts = {}
  for at, seq in ipairs(seqs) do
    local found, high = false, nil
    for _, key in ipairs({KEYS[2], KEYS[3]}) do
      local some = redis.call('ZRANGE', key, whole(seq), '+inf', 'BYSCORE', 'LIMIT', 0, 2, 'WITHSCORES')
      local is_here = tonumber(some[2]) == seq
      local behind = some[is_here and 4 or 2]
      found, high = found or is_here, behind and math.min(high or math.huge, behind - 1) or high
    end
    if not found then return nil end
    parts[at] = range(seq, high)
  end
  return difference(table.concat(parts, ','), '')
end

-- Adds a row; returns its id, or 0 if a message or a row is gone, or another row covers a message of it.
local function add_row(given)
  local cites, covers, below, hidden = ranges_of(given.cites), ranges_of(given.covers), {}, {}
  for _, id in ipairs(given.draws) do
    local one = all_heads()[id]
    cites = cites and one and cites .. ',' .. one.cites
  end
  if not cites or not covers then return 0 end
  for _, id in ipairs(given.replaces) do
    below[id], covers = heads[id], covers .. ',' .. heads[id].covers
    for _, older in ipairs(heads[id].replaces) do hidden[#hidden + 1] = older end
  end
  local first, last = string.match(difference(cites .. ',' .. covers, ''), '^(%d+).-(%d+)$')
  if not first then return 0 end
  for _, other in ipairs(rows_at(covers, true)) do
    if other.kind == kind and not below[other.id] then
      if other.shown then return 0 end
      hidden[#hidden + 1] = other.id -- of another branch
    end
  end
  for _, id in ipairs(hidden) do -- never shown beside the new row, so that a deletion brings back one level
    if heads[id] then drop_row(heads[id]) end
  end
  local row = {id = redis.call('HINCRBY', ROWS, 'next', 1), kind = kind, cites = difference(cites, ''), shown = false,
    covers = difference(covers, ''), first = tonumber(first), last = tonumber(last), replaces = given.replaces,
    waits = given.waits}
  for _, one in pairs(below) do
    one.by = row.id
    write_row(one)
  end
  set('b:' .. whole(row.id), given.body)
  refresh(row)
  return row.id
end

-- Adds, deletes and activates rows, in one step; {stale} if the `state` of the thread is not the one that was read.
-- `rows`: {body, cites, covers (rising seqs), draws (ids: what they cite is cited), replaces (some of these: what they
-- cover is covered), waits}. Nothing is done if the first row is refused, as in a repeated call. `drop`: ids; `clear`
-- drops all of the kind; `activate` shows what waits. {rows}: of each row its id, or 0; empty if nothing is done
local function commit()
  if state ~= head.state then return {stale = true} end
  local reply, dropped = {}, {}
  for at, given in ipairs(head.rows) do
    reply[at] = add_row(given)
    if reply[1] == 0 then return {rows = {}} end
  end
  for _, id in ipairs(head.drop) do dropped[id] = true end
  for id, row in pairs(all_heads()) do
    if row.kind == kind and (head.clear or dropped[id]) then
      drop_row(row)
    elseif row.kind == kind and head.activate and row.waits then -- it goes into the other view
      refresh(row, true)
      row.waits = false
      refresh(row)
    end
  end
  write_views()
  redis.call('HDEL', ROWS, 'failures:' .. kind)
  return {rows = reply}
end

if head.what == 'show' then return show() end
local done = (head.what == 'commit' and commit or lease)()
if expiry > 0 then redis.call('PEXPIREAT', ROWS, whole(expiry)) end
return {cjson.encode(done), {}}
