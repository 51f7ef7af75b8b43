#!lua
-- send_to_each: copies of messages are accepted in several queues, in all of them or in none.
-- in each queue: (nowhere) -> ready when already due, else -> pending
--
-- From KEYS[1] on, for each queue one after the other: its keys and those of the payloads, as
-- `include/targets.lua` says
-- ARGV for each queue: the channel that wakes its sleeping hosts, the number of messages, and seven for each
-- message as in `send`, the last "". At most 1,000 copies in all, or one message.
--
-- Returns for each queue a list as `send` does, without -1: of ids without their payload, 20 are looked for.
-- The others count as in line, and get their payload again.
-- Crash safety: one script, all or nothing. A sender that lost the reply sends the same ids again.
-- Not allow-oom: a full Redis refuses new messages before anything is written.
-- include: clock
-- include: place
-- include: expiry
-- include: enqueue
-- include: targets
local result = {}
-- All queues are looked at before the first is written to.
local queues = incoming_each(1, 1, {})
for i, to in ipairs(queues) do
  enqueue(to.new, to.channel)
  result[i] = to.new.result
end
return result
