-- Goes into the larger variant of windows.lua, before it.
-- Returns the observation of a document, and its sources; nothing if the document is gone.
hooks.found = function(seq, tokens, name)
  for suffix, sources in string.gmatch(redis.call('HGET', KEYS[12], 'd:' .. seq) or '', '([^/;]+)/[^/]*/([%d,]+)') do
    if string.match(suffix, '^o%d+:%d+') == name .. ':' .. tokens then
      return redis.call('HGET', KEYS[4] .. seq .. ':' .. suffix, 'observation'), sources
    end
  end
end
