#!lua flags=allow-oom
-- extend: renew leases while their handlers run.
-- unack -> unack, with a later end
--
-- KEYS[1] {dp:<queue>}:unack      zset  id -> end of the lease, unix seconds
-- KEYS[2] {dp:<queue>}:retry:cnt  hash  id -> retries left; read only
-- KEYS[3] {dp:<queue>}:attempts   hash  id -> "failed:released"; read only
-- ARGV[1] lease, ms from now
-- ARGV[2..] three for each message: id, retries left, "failed:released" (the token)
--
-- Returns for each message 1, or 0 when its lease is lost; then nothing of it is touched.
-- Crash safety: one script. A repeat moves the end of the lease to the same distance from now.
-- include: clock
-- include: held
local unack, counts, attempts = KEYS[1], KEYS[2], KEYS[3]
local ids, lefts, tries = claims(2, 3)
local ours = held(unack, counts, attempts, ids, lefts, tries)
local lease_end = score(now_ceil_ms + tonumber(ARGV[1]))
local result, leases = {}, {}
for i, id in ipairs(ids) do
  result[i] = ours[i] and 1 or 0
  if ours[i] then
    leases[#leases + 1] = lease_end
    leases[#leases + 1] = id
  end
end
if #leases > 0 then redis.call('ZADD', unack, 'XX', unpack(leases)) end
return result
