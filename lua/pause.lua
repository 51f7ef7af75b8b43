#!lua flags=allow-oom
-- pause: stop giving out the messages of a queue, or resume it.
--
-- KEYS[1] {dp:<queue>}:paused  string  1 while the queue is paused, else absent
-- ARGV[1] channel that wakes sleeping hosts
-- ARGV[2] 1 to pause, 0 to resume
--
-- Returns 1.
-- Crash safety: one write. A repeat changes nothing. It is `ready_to_unack` that looks at the key;
-- a delayqueue consumer does not.
if ARGV[2] == '1' then
  redis.call('SET', KEYS[1], '1')
else
  redis.call('DEL', KEYS[1])
  -- A hint, which may fail or be lost: hosts poll as well.
  redis.pcall('PUBLISH', ARGV[1], '')
end
return 1
