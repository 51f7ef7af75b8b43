#!lua
-- ack_and_send: a message is done, and what its handler sent is accepted in the same step.
-- unack -> (nowhere)
-- each new message: (nowhere) -> ready when already due, else -> pending
--
-- KEYS[1] {dp:<queue>}:unack      zset  id -> end of the lease, unix seconds
-- KEYS[2] {dp:<queue>}:retry:cnt  hash  id -> retries left
-- KEYS[3] {dp:<queue>}:attempts   hash  id -> "failed:released"
-- KEYS[4] {dp:<queue>}:headers    hash  id -> JSON
-- KEYS[5] {dp:<queue>}:history    hash  id -> failed attempts
-- KEYS[6] {dp:<queue>}:stats      hash  totals
-- KEYS[7] {dp:<queue>}:repeats    hash  id -> repeat that waits for the end of a run; read only
-- KEYS[8] {dp:<queue>}:msg:<id>   string  the payload of the message that is done
-- KEYS[9..] for each queue that is sent to, which may be the message's own, one after the other:
--         :pending, :ready, :retry:cnt, :headers, :stats, :dedup, :attempts, :due and :history as
--         in `send`, :unack, :retry, :garbage and :moving, which are read only, then the
--         payloads' keys
-- ARGV[1..3] id, retries left, "failed:released" (the token)
-- ARGV[4..] for each queue: the channel that wakes its sleeping hosts, the number of messages, and
--         seven for each message as in `send`, the last "". At most 1,000 messages in all.
--
-- Returns a list of one: 1 or 2 as `ack`, or 0 when the lease is lost; then nothing is touched and nothing
-- sent.
-- An id that is there already, that of the message itself too, is passed over as in `send`. Of ids
-- without their payload, 20 are looked for. The others count as in line, and get their payload again.
-- Crash safety: one script, all or nothing. A repeat answers 0 and sends nothing more.
-- Not allow-oom: a full Redis refuses it before anything is written, and the lease goes on.
-- include: clock
-- include: held
-- include: acked
-- include: place
-- include: expiry
-- include: enqueue
-- include: targets
local result, done, payloads = handled({ARGV[1]}, {ARGV[2]}, {ARGV[3]})
if #done == 0 then return result end

-- All queues are looked at before the first is written to.
local queues = incoming_each(9, 4, {[KEYS[8]] = true})
for _, to in ipairs(queues) do enqueue(to.new, to.channel) end
remove(done, payloads)
return result
