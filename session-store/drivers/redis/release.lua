#!lua
--[[ release: gives the lease back without a look at the head: for a retry later, or a shutdown.  S1 S2 S3 S4 S6 S7 D1 D8
  KEYS  1 log stream   2 meta hash   3 due zset
  ARGV  1 fence   2 n   3 bell   4 due bell   5 id   6 due in ms   7.. a block
  Gives {"ok", first position, time} | {"again", stream entries} | {"fenced", newest fence} | {"out_of_step", last n} | {"not_found"}
  Again: n is the last one by then, and the answer is what is stored (S3), though the lease is given back. ]]
local m = facts(KEYS[2])
local no = refusal(m, KEYS[1], ARGV[1], ARGV[2])
if no then return no end
local from, at = append(m, KEYS[1], KEYS[2], ARGV[3], ARGV[1], 7, ARGV[2])
redis.call("HSET", KEYS[2], "held", 0)
schedule(KEYS[3], KEYS[2], ARGV[5], millis() + tonumber(ARGV[6]))
redis.call("PUBLISH", ARGV[4], "due")
return { "ok", from, at }
