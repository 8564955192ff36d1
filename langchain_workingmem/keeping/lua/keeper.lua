-- Says what waits for the keeper of a working memory, and lets one run at a time work on it.
-- `due` of the values: <thread as a tag>/<times that it was told>/<tokens>;... : threads with messages that no keeper has read.
-- ARGV  user or '', token of the run, what it does:
--         'start' (a thread has more messages), 'look' (it wants to begin), 'renew' (before a call of the model), 'good' (an answer was
--         of use: pauses end), 'end' (it has read a thread), 'fail' (the model failed: nobody asks before a pause is over),
--       ms that the lease lasts, the thread as a tag or '', tokens that are added, or times that the run knew of when it began to read,
--       tokens from which on a keeper begins ('': from none on, whatever pauses are under way), ms of the first and of the longest
--       pause, then pairs of a usage counter and a number or a text
-- Reply ms for which another run has the lease (0: this one has it, -1: nobody, and nothing is to be done), `due`, ms of the pause;
--       WMOWNER, WMNOTHREAD, WMDELETED.
local refusal = values_refusal(ARGV[1])
if refusal then return refusal end
local _, token, what, lasts, tag, number, least, first, longest = unpack(ARGV, 1, 9)
number = tonumber(number)
if what ~= 'start' and redis.call('EXISTS', values_key) == 0 then return {-1, '', 0} end -- deleted meanwhile
local present = now()
local lease, leased_until, pause_until, due_text = unpack(redis.call('HMGET', values_key, 'lease', 'leased_until', 'pause_until', 'due'))

local due, entry, waiting = {}, nil, 0
for name, times, tokens in string.gmatch(due_text or '', '([^/;]+)/(%d+)/(%d+)') do
  due[#due + 1] = {name = name, times = tonumber(times), tokens = tonumber(tokens)}
  if name == tag then entry = due[#due] end
end
if what == 'start' then
  if not entry then
    entry = {name = tag, times = 0, tokens = 0}
    due[#due + 1] = entry
  end
  entry.times, entry.tokens = entry.times + 1, entry.tokens + number
elseif what == 'end' and entry and entry.times == number then
  entry.is_done = true
end
local parts = {}
for _, one in ipairs(due) do
  if not one.is_done then
    parts[#parts + 1] = one.name .. '/' .. as_integer(one.times) .. '/' .. as_integer(one.tokens)
    waiting = waiting + one.tokens
  end
end
local text = table.concat(parts, ';')
if text == '' then
  redis.call('HDEL', values_key, 'due')
elseif text ~= due_text then
  redis.call('HSET', values_key, 'due', text)
end

for at = 10, #ARGV, 2 do
  if ARGV[at] == 'last_error' then
    if ARGV[at + 1] ~= '' then redis.call('HSET', values_key, 'last_error', ARGV[at + 1]) end
  elseif tonumber(ARGV[at + 1]) > 0 then
    redis.call('HINCRBY', values_key, ARGV[at], ARGV[at + 1])
  end
end

local busy = lease and lease ~= token and math.ceil((leased_until - present) / 1000) or 0
local pause = 0
if what == 'fail' and busy <= 0 then
  local streak = redis.call('HINCRBY', values_key, 'streak', 1)
  pause = math.min(first * 2 ^ math.min(streak - 1, 30), tonumber(longest))
  redis.call('HSET', values_key, 'pause_until', as_integer(present + pause * 1000))
elseif what == 'good' then
  redis.call('HDEL', values_key, 'streak', 'pause_until')
end
local is_due = text ~= '' and (least == '' or (waiting >= tonumber(least) and tonumber(pause_until or 0) <= present))
local goes_on = what == 'renew' or what == 'good' or (is_due and what ~= 'fail')
if busy <= 0 then
  if goes_on then
    redis.call('HSET', values_key, 'lease', token, 'leased_until', as_integer(present + lasts * 1000))
  elseif lease == token then
    redis.call('HDEL', values_key, 'lease', 'leased_until')
  end
end
if #KEYS > 3 then -- whoever deletes the thread also deletes the values, and they expire with it
  mark_thread('t')
  local expiry = redis.call('PEXPIRETIME', KEYS[1])
  if expiry > 0 then redis.call('PEXPIREAT', values_key, as_integer(expiry)) end
end
return {busy > 0 and busy or goes_on and 0 or -1, text, pause}
