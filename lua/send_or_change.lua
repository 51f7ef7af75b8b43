#!lua
-- send_or_change: accept a message, or put it in the place of what is there under its id, or move that.
-- One at a time: its cost grows with the length of the two lists if the message is in one, as that of `cancel`.
-- (nowhere) -> ready when already due, else -> pending
-- pending, ready, retry, garbage, dead letter -> pending, ready or retry
-- unack: stays, and the repeat waits in `repeats` until the run has ended
--
-- KEYS[1] {dp:<queue>}:pending    zset    id -> due time, unix seconds, three decimals
-- KEYS[2] {dp:<queue>}:ready      list    ids, LPUSH in, RPOP out
-- KEYS[3] {dp:<queue>}:retry      list    ids, LPUSH in, RPOP out
-- KEYS[4] {dp:<queue>}:unack      zset    id -> end of the lease; read only
-- KEYS[5] {dp:<queue>}:retry:cnt  hash    id -> retries left
-- KEYS[6] {dp:<queue>}:attempts   hash    id -> "failed:released"
-- KEYS[7] {dp:<queue>}:due        hash    id -> unix ms at which a waiting message became due
-- KEYS[8] {dp:<queue>}:headers    hash    id -> JSON
-- KEYS[9] {dp:<queue>}:history    hash    id -> failed attempts
-- KEYS[10] {dp:<queue>}:stats     hash    totals
-- KEYS[11] {dp:<queue>}:dead      zset    id -> time of death
-- KEYS[12] {dp:<queue>}:garbage   set     ids that become dead letters
-- KEYS[13] {dp:<queue>}:moving    zset    id -> since when; read only
-- KEYS[14] {dp:<queue>}:repeats   hash    id -> repeat that waits for the end of a run
-- KEYS[15] {dp:<queue>}:msg:<id>  string  the payload
-- ARGV[1] channel that wakes sleeping hosts
-- ARGV[2] id
-- ARGV[3] payload
-- ARGV[4] due ("+N": N ms from now, else unix ms)
-- ARGV[5] retries
-- ARGV[6] headers as JSON, or ""
-- ARGV[7] what is done to a message that waits: `replace` it, or `extend` its time
-- ARGV[8] how long after its first send it is due at the latest, ms, or ""
--
-- Returns a pair. The second is the due time in unix ms. The first:
-- * 0 nothing was done, since the message moves to or from another store
-- * 1 it was sent
-- * 2 it has replaced what was there
-- * 3 what was there has the due time
-- * 4 the message runs, and the repeat takes effect when the run has ended
--
-- What begins anew (sent, replaced, or dead before) has new retries and no failed attempts.
-- Crash safety: one script. A sender that lost the reply sends again, and the same is done again. If the message
-- has run in between, it runs once more.
-- Not allow-oom: a full Redis refuses new messages before anything is written.
-- include: clock
-- include: expiry
-- include: change
check_types()
local wanted = ARGV[4]
local due_ms = tonumber(wanted)
if string.sub(wanted, 1, 1) == '+' then
  local delay_ms = tonumber(string.sub(wanted, 2))
  due_ms = delay_ms > 0 and now_ceil_ms + delay_ms or now_ms
end
-- A run may have ended, and nobody has seen to its repeat yet: that came before this one.
after_run(ARGV[2], KEYS[15], ARGV[1])
return accept({
  id = ARGV[2], payload = ARGV[3], due_ms = due_ms, retries = ARGV[5],
  headers = with_expiry(ARGV[6]), mode = ARGV[7], wait = ARGV[8],
}, KEYS[15], ARGV[1])
