#!lua flags=allow-oom
-- cancel: take back one message that waits, or also one that a host has in flight.
-- One at a time: its cost grows with the length of the two lists (15 ms at 1,000,000 ids).
-- That is the price of lists as delayqueue has them.
-- pending, ready, retry -> (nowhere); unack -> (nowhere) if asked to
--
-- KEYS[1]  {dp:<queue>}:pending    zset    id -> due time, unix seconds
-- KEYS[2]  {dp:<queue>}:ready      list    ids
-- KEYS[3]  {dp:<queue>}:retry      list    ids
-- KEYS[4]  {dp:<queue>}:unack      zset    id -> end of the lease
-- KEYS[5]  {dp:<queue>}:retry:cnt  hash    id -> retries left
-- KEYS[6]  {dp:<queue>}:attempts   hash    id -> "failed:released"
-- KEYS[7]  {dp:<queue>}:due        hash    id -> unix ms at which it became due
-- KEYS[8]  {dp:<queue>}:headers    hash    id -> JSON
-- KEYS[9]  {dp:<queue>}:history    hash    id -> failed attempts
-- KEYS[10] {dp:<queue>}:stats      hash    totals
-- KEYS[11] {dp:<queue>}:msg:<id>   string  the payload
-- ARGV[1]  id
-- ARGV[2]  1 to take it from the host that has it in flight, too; else 0
-- ARGV[3]  channel that tells hosts
--
-- Returns 1 cancelled, 3 cancelled while a host had it in flight, 2 a host has it in flight (nothing is
-- changed), 0 no such message.
-- Crash safety: one script. A repeat answers 0. What its host settles later is refused, since it is in unack
-- no more. If the host is not told, it finds out when it renews the lease.
local pending, ready, retry, unack, stats = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[10]
local id = ARGV[1]
local in_flight = redis.call('ZSCORE', unack, id)
if in_flight and ARGV[2] ~= '1' then return 2 end
redis.call('ZCARD', pending)
redis.call('LLEN', ready)
redis.call('LLEN', retry)
redis.call('HLEN', stats)
for k = 5, 9 do redis.call('HLEN', KEYS[k]) end

if in_flight then
  redis.call('ZREM', unack, id)
elseif redis.call('ZREM', pending, id) == 0
  and redis.call('LREM', ready, -1, id) == 0
  and redis.call('LREM', retry, -1, id) == 0 then
  return 0
end
redis.call('DEL', KEYS[11])
for k = 5, 9 do redis.call('HDEL', KEYS[k], id) end
redis.pcall('HINCRBY', stats, 'cancelled', 1)
if not in_flight then return 1 end
-- A hint, which may fail or be lost.
redis.pcall('PUBLISH', ARGV[3], 'killed')
return 3
