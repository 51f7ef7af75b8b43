#!lua flags=allow-oom
-- ack: messages are done; nothing of them is kept.
-- unack -> (nowhere)
--
-- KEYS[1] {dp:<queue>}:unack      zset  id -> end of the lease, unix seconds
-- KEYS[2] {dp:<queue>}:retry:cnt  hash  id -> retries left
-- KEYS[3] {dp:<queue>}:attempts   hash  id -> "failed:released"
-- KEYS[4] {dp:<queue>}:headers    hash  id -> JSON
-- KEYS[5] {dp:<queue>}:history    hash  id -> failed attempts
-- KEYS[6] {dp:<queue>}:stats      hash  totals
-- KEYS[7] {dp:<queue>}:repeats    hash  id -> repeat that waits for the end of a run; read only
-- KEYS[7+i] {dp:<queue>}:msg:<id> string  the payload of message i
-- ARGV three for each message: id, retries left, "failed:released" (the token)
--
-- Returns one text with a character for each message: 1; 2 when a repeat of it waits for this, which is for
-- `after_run`; or 0 when its lease is lost. Then nothing of it is touched.
-- Crash safety: one script. A repeat answers 0 and changes nothing.
-- include: held
-- include: acked
local ids, lefts, tries = claims(1, 3)
local result, done, payloads = handled(ids, lefts, tries)
remove(done, payloads)
return table.concat(result)
