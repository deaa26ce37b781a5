#!lua
--[[ wake: makes a session due now, whatever it waits for; a held one is left alone.  D1 D5
  KEYS  1 meta hash   2 due zset
  ARGV  1 id   2 due bell
  Gives {"ok"} | {"not_found"}
  Again: it is due already, or is looked at once more, which is always allowed. ]]
local m = facts(KEYS[1])
if not m then return { "not_found" } end
if m.held ~= "1" then
  schedule(KEYS[2], KEYS[1], ARGV[1], millis())
  redis.call("PUBLISH", ARGV[2], "due")
end
return { "ok" }
