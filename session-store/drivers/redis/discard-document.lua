#!lua flags=allow-oom
--[[ discard-document: takes a document away, and gives its name back. It may run when memory is short, since it frees some.  K1 K3
  KEYS  1 answer string of this call   2 document hash   3 index zset   4 names hash   5 index zset of the kind that must have none
  ARGV  1 keep the answer for (ms)   2 id   3 look at KEYS 5: 0|1
  Gives {"ok"} | {"in_use"} | {"not_found"}
  Again: the answer is kept under the call's own nonce for a while. ]]
if redis.call("EXISTS", KEYS[1]) == 1 then return { "ok" } end
local name = redis.call("HGET", KEYS[2], "name")
if not name then return { "not_found" } end
if ARGV[3] == "1" and redis.call("ZCARD", KEYS[5]) > 0 then return { "in_use" } end
redis.call("UNLINK", KEYS[2])
redis.call("ZREM", KEYS[3], ARGV[2])
if name ~= "" then redis.call("HDEL", KEYS[4], name) end
redis.call("SET", KEYS[1], "1", "PX", ARGV[1])
return { "ok" }
