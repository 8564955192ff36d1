-- Reads and changes the rows of a kind, and has the lease of its worker. Goes after rows.lua.
-- ARGV  1 {user, kind, what} and what that says; then the body of each row. Reply a JSON object, and bodies behind it
local kind, owner, created_at, edits = head.kind, unpack(redis.call('HMGET', KEYS[1], 'user', 'created_at', 'edits'))
local time, expiry = redis.call('TIME'), redis.call('PEXPIRETIME', KEYS[1])
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local no = refusal(head.user, owner) or (not owner and head.what ~= 'show' and 'thread')
if no then return {cjson.encode({refused = no}), {}} end
local function get_own(name) return get(name .. ':' .. kind) end

-- Returns the rows that are shown, and bodies of those behind the caller's `revision`; `work` adds what a worker needs.
-- {revision, expires (ms), missing_at (ms: there is no thread); since, ids, covered unless the revision is known;
--  created_at, edits, ahead (covered by rows that wait), failures, failed}
local function show()
  local known, shown, epoch, bodies, fields = head.revision or '', get_own('shown') or '', (get_own('epoch') or '') .. '.', {}, {}
  local found = {revision = epoch .. (string.match(shown, '(%d+)$') or 0), missing_at = not owner and now or nil}
  if expiry > 0 then found.expires = expiry end
  if head.work then
    local waiting = {}
    for id in string.gmatch(get_own('ahead') or '', '%d+') do
      if row_of(id) and is_current(row_of(id)) then waiting[#waiting + 1] = row_of(id).covers end
    end
    found.created_at, found.edits, found.ahead = created_at or '', edits or '0', table.concat(waiting, ',')
    found.failures, found.failed = tonumber(get_own('failures') or 0), get_own('failed') or ''
  end
  if known == found.revision then return found, bodies end
  found.since = string.sub(known, 1, #epoch) == epoch and tonumber(string.match(known, '%d+$')) or 0
  found.ids, found.covered = combine(shown, range(0, found.since)), get_own('covered') or ''
  for at, id in ipairs(numbers_in(found.ids)) do fields[at] = 'b:' .. whole(id) end
  for first = 1, #fields, 1000 do
    local some = redis.call('HMGET', ROWS, unpack(fields, first, math.min(first + 999, #fields)))
    for _, body in ipairs(some) do bodies[#bodies + 1] = body or '' end
  end
  return found, bodies
end

-- Takes, prolongs or gives back the lease ('take', 'give'), or lets all workers pause ('fail').
-- `token`; `ms` of the lease or of the first pause, `most` of a pause; `force` takes it despite a pause; `counts`: the
-- failure is counted until rows are committed, and was `about` something.
-- {wait, pause}: ms until it is free, 0 if the caller has it; whether all pause
local function lease()
  local holder, till = string.match(get_own('lease') or '', '^(%S+) (%d+)$')
  local is_held, ms = holder and holder ~= head.token and tonumber(till) > now, head.ms
  if head.what == 'give' then
    if holder == head.token then redis.call('HDEL', ROWS, 'lease:' .. kind) end
    return {wait = 0}
  end
  if is_held and not (head.force and holder == 'pause') then return {wait = till - now, pause = holder == 'pause'} end
  if head.what == 'fail' then
    ms = math.min(head.most, ms * 2 ^ (redis.call('HINCRBY', ROWS, 'streak:' .. kind, 1) - 1))
    if head.counts then set('failures:' .. kind, (get_own('failures') or 0) + 1, 'failed:' .. kind, head.about) end
  end
  set('lease:' .. kind, (head.what == 'fail' and 'pause' or head.token) .. ' ' .. whole(now + ms))
  return {wait = 0}
end

-- Writes seqs as ranges, each up to the next message, so that those of neighbours touch; nothing if a message is gone.
local function ranges_of(seqs)
  local parts = {}
  for at, seq in ipairs(seqs) do
    local high
    for _, key in ipairs({KEYS[2], KEYS[3]}) do
      local behind = redis.call('ZRANGE', key, '(' .. whole(seq), '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
      if behind then high = math.min(high or math.huge, behind - 1) end
    end
    parts[at] = range(seq, high)
  end
  local ranges = combine(table.concat(parts, ','), '')
  return count_in(ranges, true) == #seqs and ranges or nil
end

local function add_row(given, body)
  local row = {kind = kind, cites = ranges_of(given.cites), covers = ranges_of(given.covers), replaces = given.replaces}
  if not row.cites or not row.covers then return 'stale' end
  local below, hidden = {}, {} -- hidden: never shown beside the new row, so that a deletion brings back one level
  for _, id in ipairs(numbers_in(row.replaces)) do
    local one = row_of(id)
    if not one or one.kind ~= kind then return 'stale' end
    below[id], row.cites, row.covers = one, row.cites .. ',' .. one.cites, row.covers .. ',' .. one.covers
    for _, older in ipairs(numbers_in(one.replaces)) do hidden[#hidden + 1] = row_of(older) or nil end
  end
  for _, id in ipairs(numbers_in(given.draws)) do
    if not row_of(id) then return 'stale' end
    row.cites = row.cites .. ',' .. row_of(id).cites
  end
  row.cites, row.covers = combine(row.cites, ''), combine(row.covers, '')
  for _, other in ipairs(rows_at(row.covers, true)) do
    if other.kind == kind and not below[other.id] then
      if other.shown or (not other.active and is_current(other)) then return 'covered' end
      hidden[#hidden + 1] = other -- of another branch
    end
  end
  for _, other in ipairs(hidden) do
    if row_of(other.id) then drop_row(other) end
  end
  row.id, row.number, row.active, row.shown = redis.call('HINCRBY', ROWS, 'next', 1), count_in(row.cites, true), not given.waits, false
  for _, one in pairs(below) do
    one.by = row.id
    write_row(one)
  end
  local first, last = string.match(combine(row.cites .. ',' .. row.covers, ''), '^(%d+).-(%d+)$')
  if first then
    local all = places_of_rows()
    all[#all + 1], has_moved = {row.id, tonumber(first), tonumber(last)}, true
  end
  set('b:' .. whole(row.id), body)
  if given.waits then set('ahead:' .. kind, (get_own('ahead') or '') .. whole(row.id) .. ',') end
  refresh(row)
  return row.id
end

-- Adds, deletes and activates rows, in one step; {stale} if the thread is not as it was read: `created_at`, `edits`.
-- `rows`: {cites, covers (rising seqs), replaces (ranges of ids, whose messages are cited and covered, too), draws
-- (ranges of ids, whose messages are cited, too), waits (is not active yet)}. `whole`: nothing is done if the first row
-- is refused, as in a repeated call. `drop`: ranges of ids. `clear` drops all of the kind. `activate` shows what waits.
-- {rows}: of each row its id, 'stale' (a message or a row is gone), or 'covered' (another row covers a message of it)
local function commit()
  if created_at ~= head.created_at or (edits or '0') ~= head.edits then return {stale = true} end
  local reply, dropped = {}, numbers_in(head.drop)
  for at, given in ipairs(head.rows) do
    reply[at] = add_row(given, ARGV[at + 1])
    if head.whole and type(reply[1]) == 'string' then return {rows = reply} end
  end
  for _, field in ipairs(head.clear and redis.call('HKEYS', ROWS) or {}) do
    dropped[#dropped + 1] = tonumber(string.match(field, '^r:(%d+)$'))
  end
  for _, id in ipairs(dropped) do
    if row_of(id) and row_of(id).kind == kind then drop_row(row_of(id)) end
  end
  for id in string.gmatch(head.activate and get_own('ahead') or '', '%d+') do
    local row = row_of(id)
    if row then row.active = true refresh(row) end
  end
  if head.activate or head.clear then redis.call('HDEL', ROWS, 'ahead:' .. kind) end
  write_views()
  redis.call('HDEL', ROWS, 'failures:' .. kind, 'failed:' .. kind, 'streak:' .. kind)
  return {rows = reply}
end

if head.what == 'show' then
  local found, bodies = show()
  return {cjson.encode(found), bodies}
end
local done = (head.what == 'commit' and commit or lease)()
if expiry > 0 then redis.call('PEXPIREAT', ROWS, whole(expiry)) end
return {cjson.encode(done), {}}
