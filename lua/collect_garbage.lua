#!lua flags=allow-oom
-- collect_garbage: bury what is out of retries or rejected. The payload, headers and history stay.
-- garbage -> dead letter
--
-- KEYS[1] {dp:<queue>}:garbage    set   ids to bury
-- KEYS[2] {dp:<queue>}:dead       zset  id -> time of death, unix seconds
-- KEYS[3] {dp:<queue>}:retry:cnt  hash  id -> retries left
-- KEYS[4] {dp:<queue>}:attempts   hash  id -> "failed:released"; of a dead letter
--                                       "failed:released:left", so that a redrive can give the
--                                       whole budget again
-- KEYS[5] {dp:<queue>}:stats      hash  totals
-- ARGV[1] the most to move, at most 1,000
--
-- Returns the number moved.
-- Crash safety: the id is a dead letter before it leaves garbage, in one script. Any host repeats
-- it on every pass; a repeat overwrites the same entry.
-- include: clock
local garbage, dead, counts, attempts, stats = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local ids = redis.call('SRANDMEMBER', garbage, ARGV[1])
if #ids == 0 then return 0 end
local left = redis.call('HMGET', counts, unpack(ids))
local tries = redis.call('HMGET', attempts, unpack(ids))
redis.call('ZCARD', dead)
redis.call('HLEN', stats)

local deaths, kept = {}, {}
for i, id in ipairs(ids) do
  deaths[2 * i - 1] = score(now_ms)
  deaths[2 * i] = id
  local failed, released = string.match(tries[i] or '0:0', '^(%d+):(%d+)')
  kept[2 * i - 1] = id
  kept[2 * i] = string.format('%d:%d:%d', failed or 0, released or 0, tonumber(left[i] or '0') or 0)
end
redis.call('ZADD', dead, unpack(deaths))
redis.call('HSET', attempts, unpack(kept))
redis.call('HDEL', counts, unpack(ids))
redis.call('SREM', garbage, unpack(ids))
redis.pcall('HINCRBY', stats, 'dead', #ids)
return #ids
