#!lua flags=allow-oom
-- nack: deliveries failed; decide at once what follows.
-- unack -> pending (a delay), retry (no delay), or garbage (no retries left)
--
-- KEYS[1] {dp:<queue>}:unack      zset  id -> end of the lease, unix seconds
-- KEYS[2] {dp:<queue>}:retry:cnt  hash  id -> retries left
-- KEYS[3] {dp:<queue>}:attempts   hash  id -> "failed:released"
-- KEYS[4] {dp:<queue>}:history    hash  id -> failed attempts, one JSON object a line
-- KEYS[5] {dp:<queue>}:pending    zset  id -> due time, unix seconds
-- KEYS[6] {dp:<queue>}:retry      list  ids, LPUSH in, RPOP out
-- KEYS[7] {dp:<queue>}:garbage    set   ids that become dead letters
-- KEYS[8] {dp:<queue>}:stats      hash  totals
-- KEYS[9] {dp:<queue>}:repeats    hash  id -> repeat that waits for the end of a run; read only
-- ARGV five for each message:
--      id, retries left, "failed:released" (the token)
--      delay in ms, or "" for at once
--      the attempt as one line of JSON
--
-- Returns for each message 1; 2 when a repeat of it waits for this, which is for `after_run`; or 0 when its
-- lease is lost. Then nothing of it is touched.
-- Crash safety: one script. A repeat answers 0 and changes nothing. A host that dies before it
-- lets the lease end.
-- include: clock
-- include: held
-- include: fail
local keys = {unack = KEYS[1], counts = KEYS[2], attempts = KEYS[3], history = KEYS[4],
  pending = KEYS[5], retry = KEYS[6], garbage = KEYS[7]}
local stats = KEYS[8]
local ids, lefts, tries = claims(1, 5)
local ours = held(keys.unack, keys.counts, keys.attempts, ids, lefts, tries)
redis.call('HLEN', stats)

local result, failed = answers(KEYS[9], ids, ours), {}
for i, id in ipairs(ids) do
  if ours[i] then
    failed[#failed + 1] = {id = id, delay_ms = tonumber(ARGV[5 * i - 1]), record = ARGV[5 * i]}
  end
end
fail(keys, failed)
if #failed > 0 then redis.pcall('HINCRBY', stats, 'nacked', #failed) end
return result
