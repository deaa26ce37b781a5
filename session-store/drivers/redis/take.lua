#!lua
--[[ take: the earliest due session of one partition, under the next fence, until a new lease end.  D1 D2 D3 D4 D7
  KEYS  1 due zset   2 taken string of this host and nonce: "id fence head attempt"
  ARGV  1 prefix of the meta keys (the session is found here; its meta hash is in the same slot)   2 host   3 lease, ms   4 longest wait, ms
        5 keep the answer for (ms)   6 look for what is scored too far ahead first: 0|1
  Gives {"ok", "id fence head attempt"} | {"none"} | {"over"} (the lease of this nonce is given back or taken over)
  Again: the nonce is known for a while, and the answer is the same lease, as long as it is one (D3). A copy that arrives later than that
  takes a session for nobody: its lease runs out and the next taker has it. ]]
local LOST_MAX = 16
local taken = redis.call("GET", KEYS[2])
if taken then
  local id, fence = taken:match("^(%S+) (%S+)")
  local m = facts(ARGV[1] .. id)
  if m and m.held == "1" and m.fence == fence then return { "ok", taken } end
  return { "over" }
end
local now = millis()

local function early()
  local first = redis.call("ZRANGE", KEYS[1], 0, 0, "WITHSCORES")
  return first[1] and tonumber(first[2]) <= now and first[1] or nil
end
local function far()
  local last = redis.call("ZRANGE", KEYS[1], 0, 0, "REV", "WITHSCORES")
  return last[1] and tonumber(last[2]) > now + ARGV[4] and last[1] or nil
end

for _ = 1, LOST_MAX do
  local id = ARGV[6] == "1" and far() or early() or far()
  if not id then return { "none" } end
  local meta = ARGV[1] .. id
  local m = facts(meta)
  if m then
    local fence = redis.call("HINCRBY", meta, "fence", 1)
    local attempt = redis.call("HINCRBY", meta, "attempts", 1)
    redis.call("HSET", meta, "held", 1, "host", ARGV[2])
    redis.call("HDEL", meta, "n", "from", "count", "at")
    schedule(KEYS[1], meta, id, now + ARGV[3])
    local answer = table.concat({ id, string.format("%d", fence), m.head, string.format("%d", attempt) }, " ")
    redis.call("SET", KEYS[2], answer, "PX", ARGV[5])
    return { "ok", answer }
  end
  redis.call("ZREM", KEYS[1], id) -- A session without a record can't be driven, and must not stand in the way of the others.
end
return { "none" }
