-- Goes after reading.lua, before view.lua: which lines cite a message, and which finer lines a line stands for.
-- A line is <id>|<tag>:<seqs>|<JSON> and cites messages, or <id>|<tag>:<seqs>/<parts>|<JSON> and stands for its parts, which are finer
-- lines; then it names some of their messages only.
-- Fields of KEYS[12]: `at:<n>` names the lines that cite a message of the n-th 64: <number>:<first seq>-<last seq>;... `up:<number>`
-- names the lines of which a line is a part, joined by commas; `linked` says that there are some.
local SPAN = 64
local lines = {} -- by number, as they were read; false: there is none

local function load_lines(numbers)
  local wanted, fields = {}, {}
  for _, number in ipairs(numbers) do
    if lines[number] == nil then
      wanted[#wanted + 1], fields[#fields + 1] = number, 'o:' .. as_integer(number)
    end
  end
  for start = 1, #fields, 1000 do
    for at, value in ipairs(redis.call('HMGET', KEYS[12], unpack(fields, start, math.min(start + 999, #fields)))) do
      local seqs, parts = string.match(value or '', '^[^|]*|[^:|]*:([%d,]*)/?([%d,%-]*)|')
      lines[wanted[start + at - 1]] = seqs and {value = value, seqs = seqs, parts = parts}
    end
  end
end

local function line_of(number)
  load_lines({number})
  return lines[number]
end

local function seqs_in(text)
  local seqs = {}
  for seq in string.gmatch(text, '%d+') do seqs[#seqs + 1] = tonumber(seq) end
  return seqs
end

-- Returns the lines that cite a message of `ranges` themselves: number -> its first seq if it cites no others, else all its seqs.
local function citing(ranges)
  local fields, last_span, found, partial = {}, -1, {}, {}
  for _, range in ipairs(ranges) do
    for span = math.max(math.floor(range[1] / SPAN), last_span + 1), math.floor(range[2] / SPAN) do
      fields[#fields + 1], last_span = 'at:' .. as_integer(span), span
    end
  end
  for start = 1, #fields, 1000 do
    for _, entries in ipairs(redis.call('HMGET', KEYS[12], unpack(fields, start, math.min(start + 999, #fields)))) do
      for number, first, last in string.gmatch(entries or '', '(%d+):(%d+)%-(%d+)') do
        number, first, last = tonumber(number), tonumber(first), tonumber(last)
        local range = found[number] == nil and ranges[place_of(ranges, first)]
        if range and range[1] <= last then
          found[number] = range[1] <= first and last <= range[2] and first
          if not found[number] then partial[#partial + 1] = number end
        end
      end
    end
  end
  load_lines(partial)
  local size, set = 0, {} -- faster than the ranges where these are short
  for _, range in ipairs(ranges) do size = size + range[2] - range[1] + 1 end
  local is_short = size < SPAN * #partial
  for _, range in ipairs(is_short and ranges or {}) do
    for seq = range[1], range[2] do set[seq] = true end
  end
  for _, number in ipairs(partial) do
    local seqs, cited = seqs_in(lines[number] and lines[number].seqs or ''), 0
    for _, seq in ipairs(seqs) do
      if set[seq] or (not is_short and range_with(ranges, seq)) then cited = cited + 1 end
    end
    found[number] = cited > 0 and (cited == #seqs and seqs[1] or seqs) or nil
  end
  return found
end

-- Returns the smaller part of what is covered: `ranges`, or all but these. A line that touches both is found from either.
local function smaller_part(ranges, covered)
  local rest, sizes = subtract_ranges(covered, ranges), {0, 0}
  for at, part in ipairs({ranges, rest}) do
    for _, range in ipairs(part) do sizes[at] = sizes[at] + range[2] - range[1] + 1 end
  end
  return sizes[2] < sizes[1] and rest or ranges
end

-- Adds to a set of lines all that stand for one of them.
local function add_coarser(set)
  if redis.call('HEXISTS', KEYS[12], 'linked') == 0 then return end
  local fields = {}
  for number in pairs(set) do fields[#fields + 1] = 'up:' .. as_integer(number) end
  while #fields > 0 do
    local more = {}
    for start = 1, #fields, 1000 do
      for _, up in ipairs(redis.call('HMGET', KEYS[12], unpack(fields, start, math.min(start + 999, #fields)))) do
        for number in string.gmatch(up or '', '%d+') do
          if not set[tonumber(number)] then
            set[tonumber(number)] = true
            more[#more + 1] = 'up:' .. number
          end
        end
      end
    end
    fields = more
  end
end

local listings = {} -- by manifest: one change asks for those before and after it several times

-- Returns the lines that a manifest lists, as joined ranges, which nobody changes.
local function listed_in(manifest)
  manifest = manifest or ''
  listings[manifest] = listings[manifest] or join_ranges(select(2, ranges_in(manifest)))
  return listings[manifest]
end

-- Returns a function that tells whether a manifest lists a line, or one that stands for it. Lines of the set `gone` do not count.
local function liveness(manifest, gone)
  local listed, known = listed_in(manifest), {}
  local function is_live(number)
    if known[number] == nil then
      known[number] = not (gone and gone[number]) and range_with(listed, number) and true or false
      if not known[number] and not (gone and gone[number]) then
        for up in string.gmatch(redis.call('HGET', KEYS[12], 'up:' .. as_integer(number)) or '', '%d+') do
          known[number] = known[number] or is_live(tonumber(up))
        end
      end
    end
    return known[number]
  end
  return is_live
end

local function touches(ranges, others)
  for _, range in ipairs(ranges) do
    local other = others[place_of(others, range[1])]
    if other and other[1] <= range[2] then return true end
  end
  return false
end

-- Tells whether written ranges may touch others, from the first and the last number only.
local function reaches(text, others)
  local first = tonumber(string.match(text, '^%d+'))
  local other = first and others[place_of(others, first)]
  return other and other[1] <= tonumber(string.match(text, '%d+$', -16))
end

-- Returns a manifest without the messages `out` and the lines of the set `gone`: their parts take their place, as far as these are
-- not gone and nothing else stands for them.
local function expanded(manifest, gone, out)
  local is_live, added, lost, chunks = liveness(manifest, gone), {}, ranges_of(gone), {}
  local run, tag, seqs, level
  local function flush()
    if #run > 0 or seqs ~= '' then chunks[#chunks + 1] = table.concat({tag, seqs, write_ranges(run), level}, '/') end
    run, seqs = {}, ''
  end
  local function list(first, last)
    if first > last then return end
    if run[1] and first <= run[#run][2] then flush() end
    local before = run[#run]
    if before and first == before[2] + 1 then before[2] = last else run[#run + 1] = {first, last} end
  end
  local function put_parts(number)
    local line = line_of(number)
    for _, range in ipairs(line and parse_ranges(line.parts) or {}) do
      for part = range[1], range[2] do
        if gone[part] then
          put_parts(part)
        elseif not added[part] and not is_live(part) then
          added[part] = true
          list(part, part)
        end
      end
    end
  end
  for whole, own_tag, own_seqs, numbers, own_level in string.gmatch(manifest, '(([^/;]+)/([^/;]*)/([^/;]*)/(%d+))') do
    local is_cut = reaches(own_seqs, out)
    local listed = (is_cut or reaches(numbers, lost)) and parse_ranges(numbers)
    if is_cut or (listed and touches(listed, lost)) then
      run, tag, seqs, level = {}, own_tag, own_seqs, own_level
      if is_cut then seqs = write_ranges(subtract_ranges(parse_ranges(own_seqs), out)) end
      for _, range in ipairs(listed) do
        local first, at = range[1], place_of(lost, range[1])
        while lost[at] and lost[at][1] <= range[2] do
          list(first, lost[at][1] - 1)
          for number = math.max(first, lost[at][1]), math.min(range[2], lost[at][2]) do put_parts(number) end
          first, at = lost[at][2] + 1, at + 1
        end
        list(first, range[2])
      end
      flush()
    else
      chunks[#chunks + 1] = whole
    end
  end
  return table.concat(chunks, ';')
end

-- Returns the manifest with finer lines in place of those that stand for a message of `ranges` and for others; nil if there are none.
-- `cites`: what `citing` returns for the ranges.
local function finer(manifest, ranges, cites)
  if #ranges == 0 or redis.call('HEXISTS', KEYS[12], 'linked') == 0 then return end
  local coarse, numbers, whole = {}, {}, {}
  cites = cites or citing(ranges)
  for number in pairs(cites) do coarse[number] = true end
  add_coarser(coarse)
  for number in pairs(coarse) do numbers[#numbers + 1] = not cites[number] and number or nil end
  load_lines(numbers)
  local function is_whole(number) -- whether it stands for none beside
    local seqs = cites[number]
    if whole[number] == nil and seqs then
      whole[number] = true
      for _, seq in ipairs(type(seqs) == 'table' and seqs or {}) do whole[number] = whole[number] and range_with(ranges, seq) and true or false end
    elseif whole[number] == nil then
      whole[number] = coarse[number] and lines[number] and true or false
      for _, range in ipairs(whole[number] and parse_ranges(lines[number].parts) or {}) do
        for part = range[1], range[2] do whole[number] = whole[number] and is_whole(part) end
      end
    end
    return whole[number]
  end
  local listed, gone, is_any = listed_in(manifest), {}, false
  for _, number in ipairs(numbers) do
    if not is_whole(number) then
      gone[number] = true
      is_any = is_any or range_with(listed, number)
    end
  end
  return is_any and expanded(manifest, gone, {}) or nil
end

-- The same for one view, with number, value, ... of the lines: a list, empty if there are none.
local function finer_lines(ranges)
  local manifest = finer(redis.call('HGET', KEYS[12], 'present') or '', ranges)
  if not manifest then return {} end
  local reply, numbers = {manifest}, {}
  for _, range in ipairs(select(2, ranges_in(manifest))) do
    for number = range[1], range[2] do numbers[#numbers + 1] = number end
  end
  load_lines(numbers)
  for _, number in ipairs(numbers) do
    if lines[number] then
      reply[#reply + 1] = as_integer(number)
      reply[#reply + 1] = lines[number].value
    end
  end
  return reply
end
