#!lua
--[[ renew: a new end for a lease that is still held under the newest fence.  S2 D1 D2
  KEYS  1 meta hash   2 due zset
  ARGV  1 id   2 fence   3 lease, ms
  Gives {"ok", head} | {"lost"}
  Again: the end moves once more, by as little as the two are apart; a lease that is given back or taken over is not touched. ]]
local m = facts(KEYS[1])
if not m or m.fence ~= ARGV[2] or m.held ~= "1" then return { "lost" } end
schedule(KEYS[2], KEYS[1], ARGV[1], millis() + ARGV[3])
return { "ok", m.head }
