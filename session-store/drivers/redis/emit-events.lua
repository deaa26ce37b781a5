#!lua
--[[ emit-events: a brain's entries, all or none, under the newest fence and while it is held.  S1 S2 S3 S4 S6 S7 D7
  KEYS  1 log stream   2 meta hash
  ARGV  1 fence   2 n, the caller's own count of its appends   3 bell   4.. a block
  Gives {"ok", first position, time} | {"again", stream entries} | {"fenced", newest fence} | {"out_of_step", last n} | {"not_found"}
  Again: n is the last one by then, and the answer is what is stored (S3); a later n or fence refuses it (S4, S2). ]]
local m = facts(KEYS[2])
local no = refusal(m, KEYS[1], ARGV[1], ARGV[2])
if no then return no end
local from, at = append(m, KEYS[1], KEYS[2], ARGV[3], ARGV[1], 4, ARGV[2])
return { "ok", from, at }
