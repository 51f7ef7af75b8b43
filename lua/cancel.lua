#!lua flags=allow-oom
-- cancel: take back one message that waits.
-- One at a time: its cost grows with the length of the two lists (15 ms at 1,000,000 ids).
-- That is the price of lists as delayqueue has them.
-- pending, ready, retry -> (nowhere)
--
-- KEYS[1]  {dp:<queue>}:pending    zset    id -> due time, unix seconds
-- KEYS[2]  {dp:<queue>}:ready      list    ids
-- KEYS[3]  {dp:<queue>}:retry      list    ids
-- KEYS[4]  {dp:<queue>}:unack      zset    id -> end of the lease; read only
-- KEYS[5]  {dp:<queue>}:retry:cnt  hash    id -> retries left
-- KEYS[6]  {dp:<queue>}:attempts   hash    id -> "failed:released"
-- KEYS[7]  {dp:<queue>}:due        hash    id -> unix ms at which it became due
-- KEYS[8]  {dp:<queue>}:headers    hash    id -> JSON
-- KEYS[9]  {dp:<queue>}:history    hash    id -> failed attempts
-- KEYS[10] {dp:<queue>}:stats      hash    totals
-- KEYS[11] {dp:<queue>}:msg:<id>   string  the payload
-- ARGV[1]  id
--
-- Returns 1 cancelled, 2 a host has it in flight (nothing is changed), 0 no such message waits.
-- Crash safety: one script. A repeat answers 0.
local pending, ready, retry, unack, stats = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[10]
local id = ARGV[1]
if redis.call('ZSCORE', unack, id) then return 2 end
redis.call('ZCARD', pending)
redis.call('LLEN', ready)
redis.call('LLEN', retry)
redis.call('HLEN', stats)
for k = 5, 9 do redis.call('HLEN', KEYS[k]) end

if redis.call('ZREM', pending, id) == 0
  and redis.call('LREM', ready, -1, id) == 0
  and redis.call('LREM', retry, -1, id) == 0 then
  return 0
end
redis.call('DEL', KEYS[11])
for k = 5, 9 do redis.call('HDEL', KEYS[k], id) end
redis.pcall('HINCRBY', stats, 'cancelled', 1)
return 1
