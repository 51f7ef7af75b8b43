#!lua flags=allow-oom
-- drop: forget reserved ids that have neither a payload nor retries on record. The ack of a
-- delayqueue consumer leaves them when the lease had expired before it.
-- unack -> (nowhere)
--
-- KEYS[1] {dp:<queue>}:unack      zset  id -> end of the lease, unix seconds
-- KEYS[2] {dp:<queue>}:retry:cnt  hash  id -> retries left
-- KEYS[3] {dp:<queue>}:attempts   hash  id -> "failed:released"
-- KEYS[4] {dp:<queue>}:headers    hash  id -> JSON
-- KEYS[5] {dp:<queue>}:history    hash  id -> failed attempts
-- KEYS[6] {dp:<queue>}:stats      hash  totals
-- KEYS[6+i] {dp:<queue>}:msg:<id> string  the payload of message i, which is to be missing
-- ARGV three for each message: id, retries left, "failed:released" (the token), as
--      `ready_to_unack` gave them out for an id that had no retries on record
--
-- Returns for each message:
-- * 1 when it is forgotten
-- * 0 when its lease is lost or its payload is there; nothing of it is touched
-- * 2 when what is there is no payload; nothing of it is touched
--
-- Crash safety: one script. A repeat answers 0 and changes nothing. If nobody calls it, the lease expires,
-- and `collect_garbage` drops the id, which still has no retries on record.
-- include: held
local unack, counts, stats = KEYS[1], KEYS[2], KEYS[6]
local ids, lefts, tries = claims(1, 3)
local ours = held(unack, counts, KEYS[3], ids, lefts, tries)
for k = 4, 6 do redis.call('HLEN', KEYS[k]) end
local result, gone = {}, {}
for i, id in ipairs(ids) do
  local payload = not ours[i] or redis.pcall('GET', KEYS[6 + i])
  result[i] = not payload and 1 or type(payload) == 'table' and 2 or 0
  if not payload then gone[#gone + 1] = id end
end
if #gone == 0 then return result end
redis.call('ZREM', unack, unpack(gone))
for k = 2, 5 do redis.call('HDEL', KEYS[k], unpack(gone)) end
redis.pcall('HINCRBY', stats, 'dropped', #gone)
return result
