#!lua
-- redrive_edited: send a dead letter again with another payload, as a new message, due at once. The
-- dead letter stays as it is.
-- (nowhere) -> ready
--
-- KEYS[1] {dp:<queue>}:dead       zset    id -> time of death, unix seconds; read only
-- KEYS[2] {dp:<queue>}:ready      list    ids, LPUSH in, RPOP out
-- KEYS[3] {dp:<queue>}:retry:cnt  hash    id -> retries left
-- KEYS[4] {dp:<queue>}:attempts   hash    id -> "failed:released:left"; read only
-- KEYS[5] {dp:<queue>}:headers    hash    id -> JSON
-- KEYS[6] {dp:<queue>}:history    hash    id -> failed attempts; the new one starts with its origin
-- KEYS[7] {dp:<queue>}:stats      hash    totals
-- KEYS[8] {dp:<queue>}:msg:<id>   string  the payload under the new id
-- ARGV[1] channel that wakes sleeping hosts
-- ARGV[2] retries of the new message, or "" for the budget that the dead letter had
-- ARGV[3] retries where that budget is not known (dead-lettered by a delayqueue consumer)
-- ARGV[4] old id
-- ARGV[5] new id
-- ARGV[6] payload
--
-- Returns 1 sent, 0 not a dead letter (nothing is changed).
-- Crash safety: one script. A sender that lost the reply and repeats it with another new id sends
-- one more; with the same, nothing more.
-- Not allow-oom: a full Redis refuses new messages before anything is written.
-- include: clock
-- include: redriven
local ready, counts, headers, history, stats = KEYS[2], KEYS[3], KEYS[5], KEYS[6], KEYS[7]
local old, new = ARGV[4], ARGV[5]
if not redis.call('ZSCORE', KEYS[1], old) then return 0 end
if redis.call('EXISTS', KEYS[8]) == 1 then return 1 end
local tries = redis.call('HGET', KEYS[4], old)
local extra = headers_of(redis.call('HGET', headers, old))
local redrives = redrives_of(redis.call('HGET', history, old))
redis.call('LLEN', ready)
for _, key in ipairs({counts, stats}) do redis.call('HLEN', key) end

redis.call('SET', KEYS[8], ARGV[6])
redis.call('HSET', counts, new, budget_of(tries, ARGV[2], ARGV[3]))
redis.call('HSET', history, new, origin(old, now_ms, redrives))
if extra then redis.call('HSET', headers, new, extra) end
redis.call('LPUSH', ready, new)
redis.pcall('HINCRBY', stats, 'redriven', 1)
-- A hint, which may fail or be lost: hosts poll as well.
redis.pcall('PUBLISH', ARGV[1], '')
return 1
