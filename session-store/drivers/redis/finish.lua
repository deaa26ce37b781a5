#!lua
--[[ finish: the end of a turn: appends and gives the lease back, if nothing came since the brain looked.  S1 S2 S3 S4 S6 S7 S8 D1 D8
  KEYS  1 log stream   2 meta hash   3 due zset
  ARGV  1 fence   2 n   3 bell   4 due bell   5 id   6 seen head   7 due in ms, or ""   8.. a block
  Gives {"ok", first position, time} | {"more"} | {"again", stream entries} | {"fenced", newest fence} | {"out_of_step", last n} | {"not_found"}
  Again: n is the last one by then, and the answer is what is stored (S3), though the lease is given back. "more" changed nothing. ]]
local m = facts(KEYS[2])
local no = refusal(m, KEYS[1], ARGV[1], ARGV[2])
if no then return no end
if m.head ~= ARGV[6] then return { "more" } end
local from, at = append(m, KEYS[1], KEYS[2], ARGV[3], ARGV[1], 8, ARGV[2])
redis.call("HSET", KEYS[2], "held", 0)
-- S8: what waits behind an open call waits for its answer; what waits for nothing is due now.
local wait = tonumber(ARGV[7]) or (m.waiting > 0 and m.open == 0 and 0) or nil
if wait then
  schedule(KEYS[3], KEYS[2], ARGV[5], millis() + wait)
  redis.call("PUBLISH", ARGV[4], "due")
else
  redis.call("ZREM", KEYS[3], ARGV[5])
  redis.call("HDEL", KEYS[2], "due")
end
return { "ok", from, at }
