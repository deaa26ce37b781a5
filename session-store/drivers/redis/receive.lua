#!lua
--[[ receive: what came from outside, all or none, and the wake that it causes.  S1 S6 S7 S8 S9 D5 D7
  KEYS  1 log stream   2 meta hash   3 due zset   4 ids hash: event id -> "position digest"   5 retry string (touched only with ARGV 7)
  ARGV  1 id   2 bell   3 due bell   4 gate or ""   5 only while idle 0|1   6 digest or ""   7 keep the retry digest for (ms), or 0
        8 wakes 0|1   9 urgent 0|1   10 count of event ids (one for each entry), then the ids; then a block
  Gives {"ok", first position, time} | {"known", stream entries} | {"moved"} | {"busy"} | {"conflict"} | {"not_found"}
  Again: the event ids are known by then, and the answer is what is stored (S9); nothing is appended, nothing woken. ]]
local m = facts(KEYS[2])
if not m then return { "not_found" } end
local ids = tonumber(ARGV[10])

local known = {}
for i = 1, ids do
  local place = redis.call("HGET", KEYS[4], ARGV[10 + i])
  if place then
    local position, digest = place:match("^(%d+) (.*)$")
    if ARGV[6] ~= "" and digest ~= "" and digest ~= ARGV[6] then return { "conflict" } end
    known[#known + 1] = position
  end
end
if #known > 0 then
  if #known < ids then return { "conflict" } end
  local entries = {}
  for i, position in ipairs(known) do entries[i] = redis.call("XRANGE", KEYS[1], position .. "-0", position .. "-0")[1] end
  return { "known", entries }
end
if ARGV[5] == "1" and m.due then return { "busy" } end
if ARGV[4] ~= "" and ARGV[4] ~= m.gate then return { "moved" } end

local from, at = append(m, KEYS[1], KEYS[2], ARGV[2], 0, 11 + ids)
local positions = {}
for i = 1, ids do
  positions[i] = string.format("%d", from + i - 1)
  redis.call("HSET", KEYS[4], ARGV[10 + i], positions[i] .. " " .. ARGV[6])
end
if ARGV[7] ~= "0" then redis.call("SET", KEYS[5], table.concat(positions, " "), "PX", ARGV[7]) end

-- D5: a held session keeps its score, an absent one is added, a rescheduled one is brought forward by what is urgent.
local now = millis()
if (not m.due and ARGV[8] == "1") or (m.due and m.held ~= "1" and ARGV[9] == "1" and tonumber(m.due) > now) then
  schedule(KEYS[3], KEYS[2], ARGV[1], now)
  redis.call("PUBLISH", ARGV[3], "due")
end
return { "ok", from, at }
