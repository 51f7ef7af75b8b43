#!lua flags=allow-oom
-- reject: deliveries that no retry can help.
-- unack -> garbage, whatever retries are left
--
-- KEYS[1] {dp:<queue>}:unack      zset  id -> end of the lease, unix seconds
-- KEYS[2] {dp:<queue>}:retry:cnt  hash  id -> retries left
-- KEYS[3] {dp:<queue>}:attempts   hash  id -> "failed:released"
-- KEYS[4] {dp:<queue>}:history    hash  id -> failed attempts, one JSON object a line
-- KEYS[5] {dp:<queue>}:retry      list  ids; read only, to check its type
-- KEYS[6] {dp:<queue>}:garbage    set   ids that become dead letters
-- KEYS[7] {dp:<queue>}:stats      hash  totals
-- KEYS[8] {dp:<queue>}:repeats    hash  id -> repeat that waits for the end of a run; read only
-- ARGV four for each message: id, retries left, "failed:released" (the token), the attempt as
--      one line of JSON
--
-- Returns for each message 1; 2 when a repeat of it waits for this, which is for `after_run`; or 0 when its
-- lease is lost. Then nothing of it is touched.
-- Crash safety: one script. A repeat answers 0 and changes nothing.
-- include: clock
-- include: held
-- include: fail
local keys = {unack = KEYS[1], counts = KEYS[2], attempts = KEYS[3], history = KEYS[4],
  retry = KEYS[5], garbage = KEYS[6]}
local stats = KEYS[7]
local ids, lefts, tries = claims(1, 4)
local ours = held(keys.unack, keys.counts, keys.attempts, ids, lefts, tries)
redis.call('HLEN', stats)

local result, failed = answers(KEYS[8], ids, ours), {}
for i, id in ipairs(ids) do
  if ours[i] then
    failed[#failed + 1] = {id = id, final = true, record = ARGV[4 * i]}
  end
end
fail(keys, failed)
if #failed > 0 then redis.pcall('HINCRBY', stats, 'rejected', #failed) end
return result
