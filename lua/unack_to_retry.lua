#!lua flags=allow-oom
-- unack_to_retry: take back messages whose lease has expired, oldest first.
-- unack -> retry, or unack -> garbage when no retries are left
--
-- KEYS[1] {dp:<queue>}:unack      zset  id -> end of the lease, unix seconds
-- KEYS[2] {dp:<queue>}:retry:cnt  hash  id -> retries left
-- KEYS[3] {dp:<queue>}:attempts   hash  id -> "failed:released"
-- KEYS[4] {dp:<queue>}:history    hash  id -> failed attempts, one JSON object a line
-- KEYS[5] {dp:<queue>}:retry      list  ids, LPUSH in, RPOP out
-- KEYS[6] {dp:<queue>}:garbage    set   ids that become dead letters
-- KEYS[7] {dp:<queue>}:stats      hash  totals
-- KEYS[8] {dp:<queue>}:repeats    hash  id -> repeat that waits for the end of a run; read only
-- ARGV[1] the most to move, at most 100
--
-- Returns {moved, us until the next lease expires or -1, 1 if repeats may wait for those that moved}. Repeats are
-- for `after_run`.
-- Messages that a delayqueue consumer nacked wait in unack as well, until their delay is over:
-- they are treated the same.
-- Crash safety: one script; any host repeats it on every pass, so recovery does not depend on
-- the host that held the lease.
-- include: clock
-- include: fail
local unack, stats = KEYS[1], KEYS[7]
local keys = {unack = unack, counts = KEYS[2], attempts = KEYS[3], history = KEYS[4],
  retry = KEYS[5], garbage = KEYS[6]}
local ids = redis.call('ZRANGEBYSCORE', unack, '-inf', score(now_ms), 'LIMIT', 0, ARGV[1])
if #ids > 0 then
  redis.call('HLEN', stats)
  local tries = redis.call('HMGET', keys.attempts, unpack(ids))
  local failed = {}
  for i, id in ipairs(ids) do
    local done = string.match(tries[i] or '0', '^(%d+)') or 0
    failed[i] = {id = id, record = string.format(
      '{"attempt":%d,"at_ms":%.0f,"class":"lease-ended","reason":"no answer before the lease ended"}',
      done + 1, now_ms)}
  end
  fail(keys, failed)
  redis.pcall('HINCRBY', stats, 'expired', #ids)
end
local head = redis.call('ZRANGE', unack, 0, 0, 'WITHSCORES')
local waits = #ids > 0 and redis.call('EXISTS', KEYS[8]) or 0
return {#ids, us_until(head[2] and score_to_ms(head[2])), waits}
