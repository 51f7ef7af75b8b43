#!lua flags=allow-oom
-- after_run: repeats whose messages do not run any more take effect, as if they had been sent now.
-- As `send_or_change`, of what is in `repeats`
--
-- KEYS[1] {dp:<queue>}:pending    zset    id -> due time, unix seconds, three decimals
-- KEYS[2] {dp:<queue>}:ready      list    ids, LPUSH in, RPOP out
-- KEYS[3] {dp:<queue>}:retry      list    ids, LPUSH in, RPOP out
-- KEYS[4] {dp:<queue>}:unack      zset    id -> end of the lease; read only
-- KEYS[5] {dp:<queue>}:retry:cnt  hash    id -> retries left
-- KEYS[6] {dp:<queue>}:attempts   hash    id -> "failed:released"
-- KEYS[7] {dp:<queue>}:due        hash    id -> unix ms at which a waiting message became due
-- KEYS[8] {dp:<queue>}:headers    hash    id -> JSON
-- KEYS[9] {dp:<queue>}:history    hash    id -> failed attempts
-- KEYS[10] {dp:<queue>}:stats     hash    totals
-- KEYS[11] {dp:<queue>}:dead      zset    id -> time of death
-- KEYS[12] {dp:<queue>}:garbage   set     ids that become dead letters
-- KEYS[13] {dp:<queue>}:moving    zset    id -> since when; read only
-- KEYS[14] {dp:<queue>}:repeats   hash    id -> repeat that waits for the end of a run
-- KEYS[14+i] {dp:<queue>}:msg:<id> string  the payload of ARGV[1+i]
-- ARGV[1] channel that wakes sleeping hosts
-- ARGV[1+i] ids, at most 20; without any, some are looked for and nothing is done
--
-- Returns ids: those that took effect; or without ids in ARGV up to 20 whose messages do not run. They need
-- their payloads' keys, so name them in a second call.
-- Crash safety: one script. Until it has run, a repeat stays in `repeats`, and heartbeats of hosts look for it.
-- A delayqueue consumer, which knows of no repeat, ends runs as well.
-- include: clock
-- include: change
check_types()
local result = {}
if #ARGV == 1 then
  -- Of many a part, another one each time.
  local ids = redis.call('HRANDFIELD', repeats, 100)
  if #ids == 0 then return ids end
  local leases, away = redis.call('ZMSCORE', unack, unpack(ids)), redis.call('ZMSCORE', moving, unpack(ids))
  for i, id in ipairs(ids) do
    if not leases[i] and not away[i] and #result < 20 then result[#result + 1] = id end
  end
  return result
end
for i = 2, #ARGV do
  if after_run(ARGV[i], KEYS[13 + i], ARGV[1]) then result[#result + 1] = ARGV[i] end
end
return result
