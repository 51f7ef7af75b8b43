#!lua flags=allow-oom
-- release: give deliveries back unhandled, without costing an attempt (a host that stops).
-- unack -> ready when no attempt has failed yet, else unack -> retry. It is first in line in both.
--
-- KEYS[1] {dp:<queue>}:unack      zset  id -> end of the lease, unix seconds
-- KEYS[2] {dp:<queue>}:retry:cnt  hash  id -> retries left; read only
-- KEYS[3] {dp:<queue>}:attempts   hash  id -> "failed:released"; the second number goes up by
--                                       one, so that the token of this delivery is spent
-- KEYS[4] {dp:<queue>}:ready      list  ids, RPUSH here: next out
-- KEYS[5] {dp:<queue>}:retry      list  ids, RPUSH here: next out
-- KEYS[6] {dp:<queue>}:stats      hash  totals
-- KEYS[7] {dp:<queue>}:repeats    hash  id -> repeat that waits for the end of a run; read only
-- ARGV[1] channel that wakes sleeping hosts
-- ARGV[2..] three for each message: id, retries left, "failed:released" (the token)
--
-- Returns for each message 1; 2 when a repeat of it waits for this, which is for `after_run`; or 0 when its
-- lease is lost. Then nothing of it is touched.
-- Crash safety: one script. A host that dies before it lets the lease end, at the price of one
-- attempt.
-- include: held
local unack, counts, attempts, ready, retry, stats =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local ids, lefts, tries = claims(2, 3)
local ours = held(unack, counts, attempts, ids, lefts, tries)
redis.call('LLEN', ready)
redis.call('LLEN', retry)
redis.call('HLEN', stats)

local result, back, fresh, again, counted = answers(KEYS[7], ids, ours), {}, {}, {}, {}
for i, id in ipairs(ids) do
  if ours[i] then
    local failed, released = string.match(tries[i], '^(%d+):(%d+)')
    counted[#counted + 1] = id
    counted[#counted + 1] = string.format('%d:%d', failed or 0, (released or 0) + 1)
    back[#back + 1] = id
    local list = tonumber(failed or 0) > 0 and again or fresh
    list[#list + 1] = id
  end
end
if #back == 0 then return result end

if #fresh > 0 then redis.call('RPUSH', ready, unpack(fresh)) end
if #again > 0 then redis.call('RPUSH', retry, unpack(again)) end
redis.call('HSET', attempts, unpack(counted))
redis.call('ZREM', unack, unpack(back))
redis.pcall('HINCRBY', stats, 'released', #back)
-- A hint, which may fail or be lost: hosts poll as well.
redis.pcall('PUBLISH', ARGV[1], '')
return result
