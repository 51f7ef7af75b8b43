#!lua flags=allow-oom
-- pause_schedule: send nothing of a schedule any more, or again. One of which nothing is kept begins now.
--
-- KEYS[1] {dp:<queue>}:schedules hash  name -> "paused:resumed:skipped:id", as in `tick`
-- ARGV[1] name of the schedule
-- ARGV[2] 1 to pause, 0 to resume
--
-- Returns 1.
-- Crash safety: one write. A repeat changes nothing: a pause keeps its beginning, and a resume its time.
-- include: clock
local kept = redis.call('HGET', KEYS[1], ARGV[1])
local is_new = not kept
kept = kept or ''
local paused, resumed, skipped, last = string.match(kept, '^(%d+):(%d+):(%d+):(.*)$')
paused, resumed, skipped, last = paused or '0', resumed or '0', skipped or '0', last or ''
local is_paused = paused ~= '0'
local pause = ARGV[2] == '1'
if is_paused == pause and not is_new then return 1 end
local now = string.format('%.0f', now_ms)
if pause then paused = now else paused, resumed = '0', now end
redis.call('HSET', KEYS[1], ARGV[1], table.concat({paused, resumed, skipped, last}, ':'))
return 1
