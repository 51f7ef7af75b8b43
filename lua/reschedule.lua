#!lua flags=allow-oom
-- reschedule: give one message that waits another due time.
-- pending -> ready or retry (due now); pending, ready, retry -> pending (due later)
--
-- KEYS[1] {dp:<queue>}:pending   zset    id -> due time, unix seconds
-- KEYS[2] {dp:<queue>}:ready     list    ids, LPUSH in, RPOP out
-- KEYS[3] {dp:<queue>}:retry     list    ids, LPUSH in, RPOP out
-- KEYS[4] {dp:<queue>}:unack     zset    id -> end of the lease; read only
-- KEYS[5] {dp:<queue>}:attempts  hash    id -> "failed:released"; read only
-- KEYS[6] {dp:<queue>}:due       hash    id -> unix ms at which a waiting message became due
-- KEYS[7] {dp:<queue>}:msg:<id>  string  the payload
-- KEYS[8] {dp:<queue>}:stats     hash    totals
-- ARGV[1] channel that wakes sleeping hosts
-- ARGV[2] id
-- ARGV[3] due ("+N": N ms from now, else unix ms)
--
-- Returns:
-- * unix ms at which it is due; what is in line already stays there when it is due now
-- * -1 when a host has it in flight, and nothing is changed
-- *  0 when no such message waits, and nothing is changed
--
-- Cost: grows with the length of the two lists, as that of `cancel`; twice that when it leaves one.
-- Crash safety: one script. The id is put where it goes before it is taken from where it was. A
-- repeat does the same again.
-- include: clock
local pending, ready, retry, due = KEYS[1], KEYS[2], KEYS[3], KEYS[6]
local id, wanted = ARGV[2], ARGV[3]
if redis.call('ZSCORE', KEYS[4], id) then return -1 end
local waits = redis.call('ZSCORE', pending, id)
redis.call('LLEN', ready)
redis.call('LLEN', retry)
local tries = redis.call('HGET', KEYS[5], id)
redis.call('HLEN', due)
redis.call('HLEN', KEYS[8])
local line = false
if not waits then
  for _, list in ipairs({ready, retry}) do
    if not line and redis.call('LPOS', list, id, 'RANK', -1) then line = list end
  end
  if not line then return 0 end
end

local due_ms
if string.sub(wanted, 1, 1) == '+' then
  local delay_ms = tonumber(string.sub(wanted, 2))
  due_ms = delay_ms > 0 and now_ceil_ms + delay_ms or now_ms
else
  due_ms = math.max(tonumber(wanted), now_ms)
end
local wakes = false
if due_ms > now_ms then
  local head = redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')
  wakes = not head[2] or due_ms < score_to_ms(head[2])
  redis.call('ZADD', pending, score(due_ms), id)
  if line then redis.call('LREM', line, -1, id) end
  redis.call('HDEL', due, id)
elseif waits then
  wakes = true
  local again = tries and string.sub(tries, 1, 2) ~= '0:'
  redis.call('LPUSH', again and retry or ready, id)
  redis.call('HSET', due, id, string.format('%.0f', now_ms))
  redis.call('ZREM', pending, id)
end
-- A delayqueue producer may have set an expiry, made for the time that it was due at. Who takes it
-- off is the first of us to see the message.
if redis.call('PERSIST', KEYS[7]) == 1 then redis.pcall('HINCRBY', KEYS[8], 'sent', 1) end
-- A hint, which may fail or be lost: hosts poll as well.
if wakes then redis.pcall('PUBLISH', ARGV[1], '') end
return due_ms
