-- Changes one file.
-- ARGV  token; path; who; ttl (ms) or ''; revisions to keep; bytes of a file, bytes, and files at most; base: the revision that
--       the caller has read, or ''; what, and then
--         write:  content; t or b; 1: refuse if there is a file
--         edit:   text to find; text instead; 1: all
--         insert: number of a line, -1: the last one; text: after that line
--         revert: revision
-- Reply {'ok', note, more...}; more of edit: how often, line of the first; 1 for 'same': nothing changed
--       {'merge', note, content or '', content of base or false}: another revision than base, so nothing was changed
--       {'missing'}, {'exists'}, {'directory', path}, {'below', file above}, {'binary'}, {'times', line...}, {'lines', count},
--       {'revision'}, {'size', bytes}, {'bytes', bytes}, {'files', count}. Errors: WMDELETED.
if redis.call('EXISTS', KEYS[1]) == 1 then return redis.error_reply('WMDELETED the resource is being deleted') end
local token, path, who, ttl, keep, most, most_bytes, most_files, base, what = unpack(ARGV, 1, 10)
local one, two, three = ARGV[11], ARGV[12], ARGV[13]
local before = reply_before(token)
if before then return before end
local file = note_of(path)
local text, kind, more = false, 't', {}
local function current()
  return is_live(file) and redis.call('HGET', texts_key, path) or ''
end
local function to_merge()
  local base_text = tonumber(base) == 0 and '' or redis.call('HGET', texts_key, path .. '\0' .. base)
  return {'merge', file and file.note or '', current(), base_text}
end
local is_stale = base ~= '' and tonumber(base) ~= (file and file.revision or 0)

if what == 'write' then
  if three == '1' and is_live(file) then return {'exists'} end
  if is_stale then return to_merge() end
  text, kind = one, two
elseif what == 'revert' then
  local old = file and (tonumber(one) == file.revision and file.note or redis.call('HGET', notes_key, path .. '\0' .. one))
  text = old and parse(old).kind ~= 'd' and redis.call('HGET', texts_key, tonumber(one) == file.revision and path or path .. '\0' .. one)
  if not text then return {'revision'} end
  kind = parse(old).kind
else
  if not is_live(file) then return is_stale and to_merge() or has_below(path) and {'directory', path} or {'missing'} end
  if file.kind == 'b' then return {'binary'} end
  text = current()
  if what == 'edit' then
    local parts, lines, from, line = {}, {}, 1, 1
    while true do
      local first, last = string.find(text, one, from, true)
      if not first then break end
      local passed = string.sub(text, from, first - 1)
      line = line + select(2, string.gsub(passed, '\n', '\n'))
      lines[#lines + 1] = line
      line = line + select(2, string.gsub(one, '\n', '\n'))
      parts[#parts + 1] = passed
      from = last + 1
    end
    if #lines == 0 or (#lines > 1 and three ~= '1') then
      if is_stale then return to_merge() end
      return {'times', unpack(lines, 1, 1000)}
    end
    parts[#parts + 1] = string.sub(text, from)
    text, more = table.concat(parts, two), {#lines, lines[1]}
  else
    if is_stale then return to_merge() end
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
if is_live(file) and kind == file.kind and text == current() then
  return done(token, ttl, {'ok', file.note, more[1] or 0, more[2] or 0, 1})
end
local reply = put(path, file, text, kind, what, who, {tonumber(keep), tonumber(most_bytes), tonumber(most_files)})
if reply[1] ~= 'ok' then return reply end
return done(token, ttl, {'ok', reply[2], more[1] or 0, more[2] or 0, 0})
