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
-- KEYS[6+i] {dp:<queue>}:msg:<id> string  the payload of message i
-- ARGV[1] channel that wakes sleeping hosts
-- ARGV[2..] six for each message: id, payload, due ("+N": N ms from now, else unix ms),
--           retries, headers as JSON or "", for how many ms after it was due its id counts as
--           there already, or 0
--
-- Returns for each message its due time in unix ms, or 0 when the id was there already and
-- nothing was written for it.
-- Crash safety: all or nothing. A sender that lost the reply sends the same ids again. What is in
-- dedup for too long is taken out by later sends and by heartbeats.
-- Not allow-oom: a full Redis refuses new messages before anything is written.
-- include: clock
-- include: enqueue
local keys = {
  pending = KEYS[1], ready = KEYS[2], counts = KEYS[3], headers = KEYS[4], stats = KEYS[5],
  dedup = KEYS[6],
}
local new = incoming(keys, 7, 2, #KEYS - 6, {})
enqueue(new, ARGV[1])
return new.result
