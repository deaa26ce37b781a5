--[[ session: what the steps on a session have in common. It is no step of its own: the loader puts it behind the first line of a step.

  Facts  the meta hash. head, time (of the newest entry), created, gate, waiting, open, attempts, fence, held 0|1, host, due (the score, kept
         here too, so that one read gives a whole record), n, from, count, at (the last append of the lease: what a resend asks for), big (bytes
         of the largest entry: how many a reader may ask for at once), id, workspace, digest, index, p:<field> (the projection). Of a removed
         session only `tombstone` is left.
  Block  the arguments of an append, from a given place on: entries (count, then type and JSON each), drop (count, names), stamp (count,
         names), set (count, then name and JSON each), waiting, open, gate index or -1, progress 0|1. effects.ts computes them; no rule about
         types is here. Entries are passed through as text: cjson would turn large numbers into floats and empty lists into objects. ]]
local function facts(meta)
  local v = redis.call(
    "HMGET", meta, "head", "time", "gate", "waiting", "open", "attempts", "big", "fence", "held", "due", "n", "from", "count", "at"
  )
  if not v[1] then return nil end
  return {
    head = v[1], time = v[2], gate = v[3], waiting = v[4], open = v[5], attempts = v[6], big = v[7], fence = v[8], held = v[9],
    due = v[10], n = v[11], from = v[12], count = v[13], at = v[14],
  }
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

-- A field of the projection; `@i` at the end stands for the position of entry i.
local function field(name, from)
  local stem, index = name:match("^(.*)@(%d+)$")
  return stem and string.format("p:%s%d", stem, from + index) or "p:" .. name
end

-- S1 S6 S7: appends a block, keeps facts and projection, rings. With n, the lease's count, it also keeps what a resend will ask for (S3).
-- Gives the first position and the time.
local function append(m, log, meta, bell, fence, first, n)
  local from, at, big = tonumber(m.head) + 1, math.max(millis(), tonumber(m.time)), tonumber(m.big)
  local count, place = tonumber(ARGV[first]), first + 1
  for i = 0, count - 1 do
    local json = ARGV[place + 1]
    redis.call("XADD", log, string.format("%d-0", from + i), "at", at, "f", fence, "t", ARGV[place], "e", json)
    if #json > big then big = #json end
    place = place + 2
  end
  for _ = 1, tonumber(ARGV[place]) do
    place = place + 1
    redis.call("HDEL", meta, field(ARGV[place], from))
  end
  place = place + 1
  for _ = 1, tonumber(ARGV[place]) do
    place = place + 1
    redis.call("HSET", meta, field(ARGV[place], from), at)
  end
  place = place + 1
  for _ = 1, tonumber(ARGV[place]) do
    redis.call("HSET", meta, field(ARGV[place + 1], from), ARGV[place + 2])
    place = place + 2
  end

  m.waiting, m.open = m.waiting + ARGV[place + 1], m.open + ARGV[place + 2]
  local gate = tonumber(ARGV[place + 3])
  if gate >= 0 then m.gate = from + gate end
  if ARGV[place + 4] == "1" then m.attempts = 0 end
  m.head = from + count - 1
  if count > 0 then m.time = at end
  local kept = { "head", m.head, "time", m.time, "gate", m.gate, "waiting", m.waiting, "open", m.open, "attempts", m.attempts, "big", big }
  if n then
    redis.call("HSET", meta, "n", n, "from", from, "count", count, "at", at, unpack(kept))
  else
    redis.call("HSET", meta, unpack(kept))
  end
  if count > 0 then redis.call("PUBLISH", bell, m.head) end
  return from, at
end
