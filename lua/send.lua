#!lua
-- send: accept new messages.
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
-- KEYS[9+i] {dp:<queue>}:msg:<id> string  the payload of message i
-- ARGV[1] channel that wakes sleeping hosts
-- ARGV[2..] seven for each message:
--           id
--           payload
--           due ("+N": N ms from now, else unix ms)
--           retries
--           headers as JSON, or ""
--           the window in ms: so long after it was due its id counts as there already; or 0
--           what `locate` said of the id, or ""
--
-- Returns for each message:
-- * its due time in unix ms
-- *  0 when the id was there already; at most a payload that was gone is written
-- * -1 when nothing was done, because the payload is gone and something is kept of the id
--
-- After -1 the caller asks `locate` where the id is, and sends again with the answer. A message that is
-- somewhere gets its payload back and stays there. One that is nowhere is new, and what was kept of its id
-- does not count.
-- Crash safety: all or nothing. A sender that lost the reply sends the same ids again. What is in
-- dedup for too long is taken out by later sends and by heartbeats.
-- Not allow-oom: a full Redis refuses new messages before anything is written.
-- include: clock
-- include: expiry
-- include: enqueue
local keys = {
  pending = KEYS[1], ready = KEYS[2], counts = KEYS[3], headers = KEYS[4], stats = KEYS[5],
  dedup = KEYS[6], attempts = KEYS[7], due = KEYS[8], history = KEYS[9],
}
local new = incoming(keys, 10, 2, #KEYS - 9, {})
enqueue(new, ARGV[1])
return new.result
