#!lua flags=allow-oom
--[[ remove: takes a session away that is idle; a tombstone stays. It may run when memory is short, since it frees some.  S5 D1
  KEYS  1 log stream   2 meta hash   3 due zset   4 ids hash
  ARGV  1 id   2 bell   3 nonce of this call
  The index zset is named by the record and lies in the same slot.
  Gives {"ok"} | {"busy"} | {"not_found"}
  Again: the tombstone holds the nonce of the call that made it, and that call is answered "ok" for ever. ]]
local known = redis.call("HMGET", KEYS[2], "head", "due", "tombstone", "index")
if known[3] == ARGV[3] then return { "ok" } end
if not known[1] then return { "not_found" } end
if known[2] then return { "busy" } end
redis.call("UNLINK", KEYS[1], KEYS[2], KEYS[4])
redis.call("HSET", KEYS[2], "tombstone", ARGV[3])
redis.call("ZREM", KEYS[3], ARGV[1])
redis.call("ZREM", known[4], ARGV[1])
redis.call("PUBLISH", ARGV[2], "look")
return { "ok" }
