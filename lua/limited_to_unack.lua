#!lua flags=allow-oom
-- limited_to_unack: reserve waiting messages under a lease, as many as the limits of the queue let go.
-- ready, retry -> unack
--
-- KEYS[1] {dp:<queue>}:ready or :retry  list    the one to look at first, oldest at the right
-- KEYS[2] {dp:<queue>}:retry or :ready  list    the other one
-- KEYS[3] {dp:<queue>}:unack      zset    id -> end of the lease, unix seconds
-- KEYS[4] {dp:<queue>}:retry:cnt  hash    id -> retries left; read only
-- KEYS[5] {dp:<queue>}:attempts   hash    id -> "failed:released"; read only
-- KEYS[6] {dp:<queue>}:due        hash    id -> unix ms at which it became due
-- KEYS[7] {dp:<queue>}:headers    hash    id -> JSON
-- KEYS[8] {dp:<queue>}:paused     string  1 while the queue is paused; read only
-- KEYS[9] {dp:<queue>}:limits     zset    `rate` -> when the next one comes by the rate (TAT), unix us;
--                                         `until` -> so long what waits counts as held back, unix us
-- KEYS[9+i] {dp:<queue>}:msg:<id> string  the payload of a message that may be among them; read only
-- ARGV[1] the most to reserve, 1 to 1,000
-- ARGV[2] lease, ms
-- ARGV[3] retries of a message that has none on record and was never tried
-- ARGV[4] messages in each time of ARGV[5], 1 to 100,000; 0 for no rate
-- ARGV[5] that time, us, at most a day
-- ARGV[6] messages that may go at once, 1 to 100,000
-- ARGV[7] the most messages in unack; 0 for no such limit
-- ARGV[7+i] the id of that message
--
-- Returns {us until the rate lets the next one go, 0 when no limit holds anything back, or -1 when one in
-- unack has to be settled first, what `ready_to_unack` answers}.
-- Crash safety: the lease and the time of the rate are written in one script, so none is forgotten
-- without the other. What is in unack is counted each time, so a host that dies leaves no number
-- behind: its leases end.
-- include: clock
-- include: gcra
-- include: reserve
if redis.call('EXISTS', KEYS[8]) == 1 then return {0, {0}} end
-- include: room
local reserved, number = {0}, 0
if room > 0 then
  local ids, taken, held = in_line(room)
  number = #ids
  reserved = to_unack(ids, taken, held, 9, 7)
end
went(number)

local wait_us = 0
if room < wanted and redis.call('LLEN', KEYS[1]) + redis.call('LLEN', KEYS[2]) > 0 then
  wait_us = held_for()
end
-- `stats` shows between two reservations what the last one has found.
if wait_us ~= 0 then
  redis.call('ZADD', limits, string.format('%.0f', now_us + math.max(wait_us, 2000000)), 'until')
elseif kept[2] then
  redis.call('ZREM', limits, 'until')
end
return {wait_us, reserved}
