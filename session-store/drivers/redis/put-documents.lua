#!lua
--[[ put-documents: documents of one workspace, all or none, each in place of a named revision.  K1 K2 K3
  KEYS  1 answer string of this call   2 clock hash: kind -> newest creation time   then for each write: document hash, index zset, names hash;
        then for each required document: document hash
  ARGV  1 keep the answer for (ms)   2 count of writes, then each: kind, id, revision it replaces, archived 0|1, name or "", JSON
  Gives {"ok", "revision created updated" each} | {"changed"} | {"taken"} | {"not_found"}
  Again: the answer is kept under the call's own nonce for a while. A copy that arrives later than that meets a newer revision. ]]
local function millis()
  local now = redis.call("TIME")
  return now[1] * 1000 + math.floor(now[2] / 1000)
end
local answered = redis.call("LRANGE", KEYS[1], 0, -1)
if #answered > 0 then return { "ok", answered } end

local writes, freed, claimed = {}, {}, {}
for i = 1, tonumber(ARGV[2]) do
  local a, k = 2 + (i - 1) * 6, 2 + (i - 1) * 3
  local w = { doc = KEYS[k + 1], index = KEYS[k + 2], names = KEYS[k + 3], kind = ARGV[a + 1], id = ARGV[a + 2] }
  w.replaces, w.archived, w.name, w.body = ARGV[a + 3], ARGV[a + 4], ARGV[a + 5], ARGV[a + 6]
  local old = redis.call("HMGET", w.doc, "revision", "created", "updated", "name")
  if (old[1] or "0") ~= w.replaces or claimed[w.doc] then return { "changed" } end
  claimed[w.doc] = true
  w.created, w.updated, w.held = old[2], old[3], old[4] or ""
  if w.held ~= "" and w.held ~= w.name then freed[w.names .. "\0" .. w.held] = true end
  writes[i] = w
end
for i = 3 + #writes * 3, #KEYS do
  if redis.call("HGET", KEYS[i], "archived") ~= "0" then return { "not_found" } end
end
for _, w in ipairs(writes) do
  if w.name ~= "" then
    local place = w.names .. "\0" .. w.name
    local holder = redis.call("HGET", w.names, w.name)
    if claimed[place] or (holder and holder ~= w.id and not freed[place]) then return { "taken" } end
    claimed[place] = true
  end
end

for _, w in ipairs(writes) do
  if w.held ~= "" and w.held ~= w.name then redis.call("HDEL", w.names, w.held) end
end
local now, answer = millis(), {}
for i, w in ipairs(writes) do
  local at = math.max(now, tonumber(w.updated or "0"))
  if not w.created then
    at = math.max(now, tonumber(redis.call("HGET", KEYS[2], w.kind) or "0") + 1)
    redis.call("HSET", KEYS[2], w.kind, at)
    redis.call("ZADD", w.index, at, w.id)
    w.created = at
  end
  local revision = w.replaces + 1
  redis.call("HSET", w.doc, "revision", revision, "created", w.created, "updated", at, "archived", w.archived, "name", w.name, "body", w.body)
  if w.name ~= "" then redis.call("HSET", w.names, w.name, w.id) end
  answer[i] = string.format("%d %d %d", revision, w.created, at)
  redis.call("RPUSH", KEYS[1], answer[i])
end
redis.call("PEXPIRE", KEYS[1], ARGV[1])
return { "ok", answer }
