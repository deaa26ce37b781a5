--[[ session: what the steps on a session have in common. It is no step of its own: the loader puts it behind the first line of a step.

  Facts  the meta hash. head, time (of the newest entry), created, gate, waiting, open, attempts, fence, held 0|1, host, due (the score, kept
         here too, so that one read gives a whole record), n, from, count, at (the last append of the lease: what a resend asks for), id,
         workspace, digest, index, p:<field> (the projection). Of a removed session only `tombstone` is left.
  Block  the arguments of an append, from a given place on: entries (count, then type and JSON each), set (count, then name and JSON each),
         drop (count, names), stamp (count, names), waiting, open, gate index or -1, progress 0|1. effects.ts computes them; no rule about
         types is here. Entries are passed through as text: cjson would turn large numbers into floats and empty lists into objects. ]]
local FACTS = { "head", "time", "gate", "waiting", "open", "attempts", "fence", "held", "due", "n", "from", "count", "at" }

local function facts(meta)
  local values = redis.call("HMGET", meta, unpack(FACTS))
  if not values[1] then return nil end
  local m = {}
  for i, name in ipairs(FACTS) do m[name] = values[i] or nil end
  return m
end

local function millis()
  local now = redis.call("TIME")
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

-- D1: the score, in the set and in the record.
local function schedule(due, meta, id, score)
  redis.call("ZADD", due, score, id)
  redis.call("HSET", meta, "due", score)
end

-- S2 S3 S4: nil lets the append through; anything else is the answer. A resend is answered though the lease is given back by then.
local function refusal(m, log, fence, n)
  if not m then return { "not_found" } end
  if m.fence ~= fence then return { "fenced", m.fence } end
  if m.n == n then
    local count, from = tonumber(m.count), tonumber(m.from)
    if count == 0 then return { "again", {} } end
    return { "again", redis.call("XRANGE", log, from .. "-0", (from + count - 1) .. "-0") }
  end
  if m.held ~= "1" then return { "fenced", m.fence } end
  if tonumber(n) ~= tonumber(m.n or "0") + 1 then return { "out_of_step", m.n or "0" } end
  return nil
end

-- S1 S6 S7: appends a block, keeps facts and projection, rings. Gives the first position, the time, and how many entries there were.
local function append(m, log, meta, bell, fence, first)
  local place = first
  local function arg()
    place = place + 1
    return ARGV[place - 1]
  end
  local from, at = tonumber(m.head) + 1, math.max(millis(), tonumber(m.time))
  local named = function(name)
    return "p:" .. name:gsub("@(%d+)$", function(index) return string.format("%d", from + index) end)
  end

  local count = tonumber(arg())
  for i = 0, count - 1 do
    redis.call("XADD", log, string.format("%d-0", from + i), "at", at, "f", fence, "t", arg(), "e", arg())
  end

  local set, drop, stamp = {}, {}, {}
  for _ = 1, tonumber(arg()) do
    local name = named(arg())
    set[#set + 1] = { name, arg() }
  end
  for _ = 1, tonumber(arg()) do drop[#drop + 1] = named(arg()) end
  for _ = 1, tonumber(arg()) do stamp[#stamp + 1] = named(arg()) end
  for _, name in ipairs(drop) do redis.call("HDEL", meta, name) end
  for _, name in ipairs(stamp) do redis.call("HSET", meta, name, at) end
  for _, field in ipairs(set) do redis.call("HSET", meta, field[1], field[2]) end

  m.waiting = tonumber(m.waiting) + arg()
  m.open = tonumber(m.open) + arg()
  local gate, isProgress = tonumber(arg()), arg() == "1"
  if gate >= 0 then m.gate = from + gate end
  if isProgress then m.attempts = "0" end
  m.head = from + count - 1
  if count > 0 then m.time = at end
  redis.call("HSET", meta, "head", m.head, "time", m.time, "gate", m.gate, "waiting", m.waiting, "open", m.open, "attempts", m.attempts)
  if count > 0 then redis.call("PUBLISH", bell, m.head) end
  return from, at, count
end

-- S3: what a resend of this append will ask for.
local function remember(meta, n, from, count, at)
  redis.call("HSET", meta, "n", n, "from", from, "count", count, "at", at)
end
