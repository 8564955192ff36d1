-- Changes one file.
-- ARGV  token; path; who; ttl (ms), 0 or ''; revisions to keep; bytes of a file, bytes, and files at most; base: the revision that
--       the caller has read, or ''; what, and then
--         write:  content; t or b; 1: refuse if there is a file
--         edit:   text to find; text instead; 1: all
--         insert: number of a line, -1: the last one; text: after that line
--         revert: revision
-- Reply {'ok', note, more...}; more of edit: how often, line of the first; 1 for 'same': nothing changed
--       {'conflict', revision or 0, content or ''}: another revision than base, so nothing was changed
--       {'missing'}, {'exists'}, {'directory', path}, {'below', file above}, {'binary'}, {'times', line...}, {'lines', count},
--       {'revision'}, {'size', bytes}, {'bytes', bytes}, {'files', count}. Errors: WMDELETED.
local refused_by = redis.call('GET', KEYS[1])
if refused_by then return redis.error_reply('WMDELETED ' .. refused_by) end
local token, path, who, ttl, keep, most, most_bytes, most_files, base, what = unpack(ARGV, 1, 10)
local one, two, three = ARGV[11], ARGV[12], ARGV[13]
local before = reply_before(token)
if before then return before end
local file = note_of(path)
local text, kind, more = false, 't', {}
local present = redis.call('HGET', texts_key, path) or ''
local function lines_in(text)
  return select(2, string.gsub(text, '\n', ''))
end
local revision = file and file.revision or 0
if base ~= '' and tonumber(base) ~= revision then return {'conflict', revision, present} end

if what == 'write' then
  if three == '1' and is_live(file) then return {'exists'} end
  text, kind = one, two
elseif what == 'revert' then
  local old = file and (tonumber(one) == file.revision and file.note or redis.call('HGET', notes_key, path .. '\0' .. one))
  text = old and parse(old).kind ~= 'd' and redis.call('HGET', texts_key, tonumber(one) == file.revision and path or path .. '\0' .. one)
  if not text then return {'revision'} end
  kind = parse(old).kind
else
  if not is_live(file) then return has_below(path) and {'directory', path} or {'missing'} end
  if file.kind == 'b' then return {'binary'} end
  text = present
  if what == 'edit' then
    local lines, from, line, first, last = {}, 1, 1
    while #lines < (three == '1' and 1 or 1000) do
      local starts, ends = string.find(text, one, from, true)
      if not starts then break end
      line = line + lines_in(string.sub(text, from, starts - 1))
      lines[#lines + 1] = line
      line = line + lines_in(one)
      first, last, from = starts, ends, ends + 1
    end
    if #lines ~= 1 then return {'times', unpack(lines)} end
    local wanted = string.gsub((string.gsub(one, '%W', '%%%0')), '%z', 'z') -- as a pattern
    local times = three == '1' and select(2, string.gsub(text, wanted, '')) or 1
    local size = #text + times * (#two - #one)
    if size > tonumber(most) then return {'size', size} end
    if times > 1 then
      text = string.gsub(text, wanted, (string.gsub(two, '%%', '%%%%')))
    else
      text = string.sub(text, 1, first - 1) .. two .. string.sub(text, last + 1)
    end
    more = {times, lines[1]}
  else
    local at, ends = 0, 0
    local wanted = tonumber(one)
    while (at < wanted or wanted == -1) and ends and ends < #text do
      ends = string.find(text, '\n', ends + 1, true) or #text
      at = at + 1
    end
    if at < wanted then return {'lines', at} end
    local head = string.sub(text, 1, ends)
    if #head > 0 and string.sub(head, -1) ~= '\n' then head = head .. '\n' end
    text, more = head .. two .. string.sub(text, ends + 1), {1, at + 1}
    if string.sub(text, -1) ~= '\n' then text = text .. '\n' end
  end
end
if #text > tonumber(most) then return {'size', #text} end
if is_live(file) and kind == file.kind and text == present then
  return done(token, ttl, {'ok', file.note, more[1] or 0, more[2] or 0, 1})
end
local reply = put(path, file, present, text, kind, what, who, {tonumber(keep), tonumber(most_bytes), tonumber(most_files)})
if reply[1] ~= 'ok' then return reply end
return done(token, ttl, {'ok', reply[2], more[1] or 0, more[2] or 0, 0})
