-- Writes a revision of one file.
-- ARGV  token; path; who; ttl (ms), 0 or ''; revisions to keep; bytes and files at most; base: the revision, or the note, that the
--       caller has read, or ''; what: write, edit, insert, revert; its content, of revert the revision that has it; t or b; 1: refuse if
--       there is a file
-- Reply {'ok', note, 1: it was like this already}
--       {'conflict', revision or 0, content or ''}: another revision than base, so nothing was changed
--       {'exists'}, {'directory', path}, {'below', file above}, {'revision'}, {'bytes', bytes}, {'files', count}, {'damaged'}.
--       Errors: WMDELETED.
local refused_by = redis.call('GET', KEYS[1])
if refused_by then return redis.error_reply('WMDELETED ' .. refused_by) end
local token, path, who, ttl, keep, most_bytes, most_files, base, what, text, kind, is_new = unpack(ARGV)
local before = reply_before(token)
if before then return before end
if is_damaged() then return {'damaged'} end
local file = note_of(path)
local present = redis.call('HGET', texts_key, path)
local revision = file and file.revision or 0
if base ~= '' and tonumber(base) ~= revision and base ~= (file and file.note) then return {'conflict', revision, present or ''} end
if is_new == '1' and is_live(file) then return {'exists'} end
if what == 'revert' then
  local is_present = tonumber(text) == revision
  local old = file and (is_present and file.note or redis.call('HGET', notes_key, path .. '\0' .. text))
  text = old and parse(old).kind ~= 'd' and redis.call('HGET', texts_key, is_present and path or path .. '\0' .. text)
  if not text then return {'revision'} end
  kind = parse(old).kind
end
if is_live(file) and kind == file.kind and text == present then return done(token, ttl, {'ok', file.note, 1}) end
local reply = put(path, file, present, text, kind, what, who, {tonumber(keep), tonumber(most_bytes), tonumber(most_files)})
if reply[1] ~= 'ok' then return reply end
return done(token, ttl, {'ok', reply[2], 0})
