#!lua flags=allow-oom
-- delete_dead: remove dead letters for good.
-- dead letter -> (nowhere)
--
-- KEYS[1] {dp:<queue>}:dead      zset  id -> time of death, unix seconds
-- KEYS[2] {dp:<queue>}:attempts  hash  id -> "failed:released:left"
-- KEYS[3] {dp:<queue>}:headers   hash  id -> JSON
-- KEYS[4] {dp:<queue>}:history   hash  id -> failed attempts
-- KEYS[5] {dp:<queue>}:stats     hash  totals
-- KEYS[5+i] {dp:<queue>}:msg:<id> string  the payload of dead letter i
-- ARGV[i] id
--
-- Returns for each id 1, or 0 when it is not a dead letter; then nothing of it is touched.
-- Crash safety: one script. A repeat answers 0.
local dead, attempts, headers, history, stats = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local deaths = redis.call('ZMSCORE', dead, unpack(ARGV))
for k = 2, 5 do redis.call('HLEN', KEYS[k]) end

local result, gone, payloads, seen = {}, {}, {}, {}
for i, id in ipairs(ARGV) do
  local there = deaths[i] and not seen[id]
  result[i] = there and 1 or 0
  seen[id] = true
  if there then
    gone[#gone + 1] = id
    payloads[#payloads + 1] = KEYS[5 + i]
  end
end
if #gone == 0 then return result end

redis.call('DEL', unpack(payloads))
for _, key in ipairs({attempts, headers, history}) do redis.call('HDEL', key, unpack(gone)) end
redis.call('ZREM', dead, unpack(gone))
redis.pcall('HINCRBY', stats, 'deleted', #gone)
return result
