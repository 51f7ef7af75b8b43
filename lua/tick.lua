#!lua
-- tick: accept the message of a schedule's tick, unless its schedule is paused, or the message of the tick
-- before has not ended.
-- (nowhere) -> ready when already due, else -> pending
--
-- KEYS[1] {dp:<queue>}:pending    zset    id -> due time, unix seconds, three decimals
-- KEYS[2] {dp:<queue>}:ready      list    ids, LPUSH in, RPOP out
-- KEYS[3] {dp:<queue>}:retry:cnt  hash    id -> retries left
-- KEYS[4] {dp:<queue>}:headers    hash    id -> JSON; only of messages that have headers
-- KEYS[5] {dp:<queue>}:stats      hash    totals
-- KEYS[6] {dp:<queue>}:dedup      zset    id -> until when it counts as there, unix seconds
-- KEYS[7] {dp:<queue>}:attempts   hash    id -> "failed:released"
-- KEYS[8] {dp:<queue>}:due        hash    id -> unix ms at which a waiting message became due
-- KEYS[9] {dp:<queue>}:history    hash    id -> failed attempts
-- KEYS[10] {dp:<queue>}:schedules hash    name -> "paused:resumed:skipped:id": unix ms since when it is paused
--                                         or 0, unix ms at which the last pause ended or it was first seen or
--                                         0, ticks that were skipped, the id of the last tick that was sent
-- KEYS[11] {dp:<queue>}:garbage   set     ids that become dead letters; read only
-- KEYS[12] {dp:<queue>}:msg:<id>  string  the payload
-- ARGV[1] channel that wakes sleeping hosts
-- ARGV[2] to ARGV[8] the message, as in `send`; its window is more than 0
-- ARGV[9] name of the schedule
-- ARGV[10] 1 if the tick is skipped while the message of the tick before has not ended, else 0
--
-- Returns what `send` returns of a message, -2 if the schedule is paused, -3 if the tick is skipped.
-- Crash safety: one script. The id of a skipped tick counts as sent, so a repeat answers 0 whatever has ended
-- since. Of a paused schedule nothing is written.
-- Not allow-oom: a full Redis refuses new messages before anything is written.
-- include: clock
-- include: expiry
-- include: enqueue
local keys = {
  pending = KEYS[1], ready = KEYS[2], counts = KEYS[3], headers = KEYS[4], stats = KEYS[5],
  dedup = KEYS[6], attempts = KEYS[7], due = KEYS[8], history = KEYS[9],
}
local schedules, garbage, id, name = KEYS[10], KEYS[11], ARGV[2], ARGV[9]
local kept = redis.call('HMGET', schedules, name)[1] or ''
local paused, resumed, skipped, last = string.match(kept, '^(%d+):(%d+):(%d+):(.*)$')
if paused and paused ~= '0' then return -2 end
redis.call('SCARD', garbage)
local new = incoming(keys, 12, 2, 1, {})
if ARGV[10] ~= '1' or #new.budgets == 0 then
  enqueue(new, ARGV[1])
  return new.result[1]
end
local function keep(number, of)
  redis.call('HSET', schedules, name, string.format('0:%s:%.0f:%s', resumed or '0', number, of))
end
-- What has retries on record is not acked, and what is in garbage has none left to run.
if last and last ~= id and redis.call('HMGET', keys.counts, last)[1]
  and redis.call('SISMEMBER', garbage, last) == 0 then
  redis.call('ZADD', keys.dedup, unpack(new.kept))
  keep(tonumber(skipped) + 1, last)
  return -3
end
enqueue(new, ARGV[1])
keep(tonumber(skipped or 0), id)
return new.result[1]
