#!lua
--[[ create: a session: log.created at position 1, its initial events behind it, due at once if one of them wakes.  S1 S6 S7 S8 S9
  KEYS  1 log stream   2 meta hash   3 due zset   4 ids hash   5 index zset of the workspace
  ARGV  1 id   2 bell   3 due bell   4 workspace   5 digest or ""   6 wakes 0|1   7 count of event ids (one for each initial entry), then the ids; then a block
  Gives {"ok", the whole meta hash} | {"conflict"} | {"not_found"} (a tombstone: the id is used up)
  Again: a known id with the same digest changes nothing and gives the record as it is now. ]]
local known = redis.call("HMGET", KEYS[2], "head", "tombstone", "digest")
if known[2] then return { "not_found" } end
if known[1] then
  if known[3] ~= ARGV[5] then return { "conflict" } end
  return { "ok", redis.call("HGETALL", KEYS[2]) }
end
local m = { head = 0, time = 0, gate = 0, waiting = 0, open = 0, attempts = 0, big = 0 }
local ids = tonumber(ARGV[7])
local _, at = append(m, KEYS[1], KEYS[2], ARGV[2], 0, 8 + ids)
redis.call("HSET", KEYS[2], "id", ARGV[1], "workspace", ARGV[4], "digest", ARGV[5], "created", at, "fence", 0, "held", 0, "index", KEYS[5])
for i = 1, ids do redis.call("HSET", KEYS[4], ARGV[7 + i], string.format("%d ", i + 1)) end
redis.call("ZADD", KEYS[5], at, ARGV[1])
if ARGV[6] == "1" then
  schedule(KEYS[3], KEYS[2], ARGV[1], millis())
  redis.call("PUBLISH", ARGV[3], "due")
end
return { "ok", redis.call("HGETALL", KEYS[2]) }
