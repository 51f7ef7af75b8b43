#!lua flags=allow-oom
-- ready_to_unack: reserve waiting messages under a lease. The same for ready and for retry: the
-- caller says which is looked at first.
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
-- KEYS[8+i] {dp:<queue>}:msg:<id> string  the payload of a message that may be among them; read only
-- ARGV[1] the most to reserve, 1 to 1,000
-- ARGV[2] lease, ms
-- ARGV[3] retries of a message that has none on record and was never tried: the caller puts them on
--         record once it has seen the payload
-- ARGV[3+i] the id of that message
--
-- Returns the number of ids that left their lists. Then six lists, oldest first: ids, retries left,
-- "failed:released", due unix ms, headers, flags. Each of the second to the fifth has nil where there is none,
-- or is empty if there is none at all. The flags are pairs: place in the list, from 1, and 1 for a message that
-- had no retries on record, plus 2 if the time by which it had to begin is over. What has no pair has no flag.
-- The second and third are the token. An id that is in unack already, or twice in line, is taken out of its
-- list and given out once, so that no two deliveries have one token. Then the payload of each KEYS[8+i] whose
-- message was reserved, nil for the others: who guessed right need not ask for it. Only a number while the
-- queue is paused or nothing waits.
-- Crash safety: the id is in unack before it leaves its list, in one script. A host that dies
-- here or later lets the lease end, and `unack_to_retry` delivers the message again.
-- include: clock
-- include: reserve
if redis.call('EXISTS', KEYS[8]) == 1 then return {0} end
local ids, taken, held = in_line(tonumber(ARGV[1]))
return to_unack(ids, taken, held, 8, 3)
