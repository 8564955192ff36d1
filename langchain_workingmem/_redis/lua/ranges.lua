-- Ranges of sequence numbers are written as 1-9,12: in ascending order, both ends belong to a range.
-- As a table they are a list of {first, last}.

local ALL = {{0, 2 ^ 53 - 1}}

local function parse_ranges(text)
  local ranges = {}
  for first, last in string.gmatch(text or '', '(%d+)%-?(%d*)') do
    ranges[#ranges + 1] = {tonumber(first), tonumber(last == '' and first or last)}
  end
  return ranges
end

local function write_ranges(ranges)
  local parts = {}
  for at, range in ipairs(ranges) do
    local first, last = as_integer(range[1]), as_integer(range[2])
    parts[at] = first == last and first or first .. '-' .. last
  end
  return table.concat(parts, ',')
end

local function add_ranges(ranges, more)
  local joined, at, beside = {}, 1, 1
  while ranges[at] or more[beside] do
    local range, last = nil, joined[#joined]
    if not more[beside] or (ranges[at] and ranges[at][1] <= more[beside][1]) then
      range, at = ranges[at], at + 1
    else
      range, beside = more[beside], beside + 1
    end
    if last and range[1] <= last[2] + 1 then
      last[2] = math.max(last[2], range[2])
    else
      joined[#joined + 1] = {range[1], range[2]}
    end
  end
  return joined
end

-- Joins ranges that are given in any order.
local function join_ranges(ranges)
  table.sort(ranges, function(a, b) return a[1] < b[1] end)
  return add_ranges(ranges, {})
end

-- Returns the ranges of a set of numbers.
local function ranges_of(set)
  local ranges = {}
  for seq in pairs(set) do ranges[#ranges + 1] = {seq, seq} end
  return join_ranges(ranges)
end

-- Returns the place of the first range that ends at a number or behind it, by bisection; one past the last if there is none.
local function place_of(ranges, seq)
  local low, high = 1, #ranges + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if ranges[middle][2] < seq then low = middle + 1 else high = middle end
  end
  return low
end

local function subtract_ranges(ranges, gone)
  local left, next_gone = {}, ranges[1] and place_of(gone, ranges[1][1])
  for _, range in ipairs(ranges) do
    local first = range[1]
    while gone[next_gone] and gone[next_gone][2] < first do next_gone = next_gone + 1 end
    local at = next_gone
    while gone[at] and gone[at][1] <= range[2] do
      if gone[at][1] > first then left[#left + 1] = {first, gone[at][1] - 1} end
      first = math.max(first, gone[at][2] + 1)
      at = at + 1
    end
    if first <= range[2] then left[#left + 1] = {first, range[2]} end
  end
  return left
end

-- Returns the range that holds a number.
local function range_with(ranges, seq)
  local range = ranges[place_of(ranges, seq)]
  return range and range[1] <= seq and range or nil
end
