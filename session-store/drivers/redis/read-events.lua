#!lua flags=no-writes
--[[ read-events: a page of a log, bounded by count, by bytes and by how far it looks.  S1
  KEYS  1 log stream   2 meta hash
  ARGV  1 first position or "-"   2 last position or "+"   3 asc|desc   4 entries at most   5 bytes at most (never before the first entry)
        6 entries to look at, at most   7.. types (none: all)
  Gives {"ok", next position to look at or "" (there is no more), (position, time, fence, JSON) flat, full by bytes 0|1} | {"not_found"}
  Again: it changes nothing. ]]
local PIECE = 128
if redis.call("HEXISTS", KEYS[2], "head") == 0 then return { "not_found" } end
local isDesc = ARGV[3] == "desc"
local low, high = ARGV[1], ARGV[2]
local limit, bytesMax, lookMax = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
if limit < 1 then return { "ok", "", {}, 0 } end
local types
for i = 7, #ARGV do
  types = types or {}
  types[ARGV[i]] = true
end

local page, found, bytes, looked = {}, 0, 0, 0
while looked < lookMax do
  local piece = types and PIECE or math.min(PIECE, limit - found)
  local rows = isDesc and redis.call("XREVRANGE", KEYS[1], high, low, "COUNT", piece) or redis.call("XRANGE", KEYS[1], low, high, "COUNT", piece)
  for _, row in ipairs(rows) do
    local position, fields = row[1]:match("^%d+"), row[2]
    if not types or types[fields[6]] then
      bytes = bytes + #fields[8]
      if found > 0 and bytes > bytesMax then return { "ok", position, page, 1 } end
      local at = #page
      page[at + 1], page[at + 2], page[at + 3], page[at + 4] = position, fields[2], fields[4], fields[8]
      found = found + 1
    end
    local next = string.format("%d", position + (isDesc and -1 or 1))
    if found >= limit then return { "ok", next, page, 0 } end
    if isDesc then high = next else low = next end
  end
  looked = looked + #rows
  if #rows < piece then return { "ok", "", page, 0 } end
end
return { "ok", isDesc and high or low, page, 0 }
