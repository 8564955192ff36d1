-- Adds, deletes and activates rows of a kind, in one step.
-- ARGV  1 {user, kind, created_at, edits, rows, whole, drop, clear, activate}; then the body of each row
--   created_at, edits   of the thread that was read, and its number of deletions and edits: {stale} if they are others now
--   rows      {cites, covers (seqs, rising), replaces (ranges of ids, whose messages are cited and covered, too), draws (ranges of ids,
--             whose messages are cited, too), waits}: one that waits is not active yet
--   whole     if the first row is refused, nothing is done: the call was sent before, or another worker was faster
--   drop      ranges of ids      clear   drops all of the kind      activate   lets what waits be shown
-- Reply {rows}: of each row its id, 'stale' (a message or a row is gone), or 'covered' (another row covers a message of it)
local kind, reply = head.kind, {rows = {}}
local owner, created_at, edits = unpack(redis.call('HMGET', KEYS[1], 'user', 'created_at', 'edits'))
local no = refusal(head.user, owner)
if no then return {cjson.encode({refused = no})} end
if not owner then return {cjson.encode({refused = 'thread'})} end
if created_at ~= head.created_at or (edits or '0') ~= head.edits then return {cjson.encode({stale = true})} end

-- Writes seqs as ranges, each up to the next message, so that those of neighbours touch; nothing if a message is gone.
local function ranges_of(seqs)
  local parts = {}
  for at, seq in ipairs(seqs) do
    local low, high = whole(seq), nil
    if count_in(KEYS[2], low .. '-' .. low) + count_in(KEYS[3], low .. '-' .. low) == 0 then return end
    for _, key in ipairs({KEYS[2], KEYS[3]}) do
      local behind = redis.call('ZRANGE', key, '(' .. low, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
      if behind then high = math.min(high or math.huge, behind - 1) end
    end
    parts[at] = low .. '-' .. (high and whole(high) or low)
  end
  return combine(table.concat(parts, ','), '')
end

local function add_row(given, body)
  local row = {kind = kind, cites = ranges_of(given.cites), covers = ranges_of(given.covers), replaces = given.replaces or '', active = not given.waits,
    shown = false}
  if not row.cites or not row.covers then return 'stale' end
  local below, hidden = {}, {} -- hidden: can never be shown beside the new row. So a deletion brings one level of replaced rows back, not more
  for _, id in ipairs(numbers_in(row.replaces)) do
    below[id] = row_of(id)
    if not below[id] or below[id].kind ~= kind then return 'stale' end
    row.cites, row.covers = combine(row.cites .. ',' .. below[id].cites, ''), combine(row.covers .. ',' .. below[id].covers, '')
    for _, older in ipairs(numbers_in(below[id].replaces)) do hidden[#hidden + 1] = row_of(older) or nil end
  end
  for _, id in ipairs(numbers_in(given.draws or '')) do
    if not row_of(id) then return 'stale' end
    row.cites = combine(row.cites .. ',' .. row_of(id).cites, '')
  end
  row.number = count_in(KEYS[2], row.cites) + count_in(KEYS[3], row.cites)
  for _, other in ipairs(rows_at(row.covers, true)) do
    if other.kind == kind and not below[other.id] then
      if other.shown or (not other.active and is_current(other)) then return 'covered' end
      hidden[#hidden + 1] = other -- of another branch
    end
  end
  for _, other in ipairs(hidden) do
    if row_of(other.id) then drop_row(other) end
  end
  row.id = redis.call('HINCRBY', ROWS, 'next', 1)
  for _, one in pairs(below) do
    one.by = row.id
    write_row(one)
  end
  local both, id = combine(row.cites .. ',' .. row.covers, ''), whole(row.id)
  if both ~= '' then
    local all = places_of_rows()
    local last = tonumber(string.match(both, '%d+$'))
    all[#all + 1], furthest, has_moved = {row.id, tonumber(string.match(both, '^%d+')), last}, math.max(furthest, last), true
  end
  redis.call('HSET', ROWS, 'b:' .. id, body)
  if not row.active then redis.call('HSET', ROWS, 'ahead:' .. kind, (redis.call('HGET', ROWS, 'ahead:' .. kind) or '') .. id .. ',') end
  refresh(row)
  return row.id
end

for at, given in ipairs(head.rows or {}) do
  reply.rows[at] = add_row(given, ARGV[at + 1])
  if head.whole and at == 1 and type(reply.rows[1]) == 'string' then return {cjson.encode(reply)} end
end
for _, field in ipairs(head.clear and redis.call('HKEYS', ROWS) or {}) do
  local row = row_of(string.match(field, '^r:(%d+)$') or 0)
  if row and row.kind == kind then forget_row(row) end
end
if head.clear then
  redis.call('HDEL', ROWS, 'shown:' .. kind, 'covered:' .. kind)
  changes_of(kind).is_other = true
end
for _, id in ipairs(numbers_in(head.drop or '')) do
  if row_of(id) and row_of(id).kind == kind then drop_row(row_of(id)) end
end
for id in string.gmatch(head.activate and redis.call('HGET', ROWS, 'ahead:' .. kind) or '', '%d+') do
  local row = row_of(id)
  if row then
    row.active = true
    refresh(row)
  end
end
if head.activate or head.clear then redis.call('HDEL', ROWS, 'ahead:' .. kind) end
write_views()
redis.call('HDEL', ROWS, 'failures:' .. kind, 'failed:' .. kind, 'streak:' .. kind)
local expiry = redis.call('PEXPIRETIME', KEYS[1])
if expiry > 0 then redis.call('PEXPIREAT', ROWS, whole(expiry)) end
return {cjson.encode(reply)}
