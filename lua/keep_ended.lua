#!lua flags=allow-oom
-- keep_ended: how messages ended, for those who look. Of all that is there, the latest are kept.
-- moves no message
--
-- KEYS[1] {dp:<queue>}:ended  list  how messages ended, latest first: unix ms, a space, JSON
-- ARGV[1] how many are kept
-- ARGV[2..] two for each message, oldest first, at most 1,000: ms since it ended, how, as JSON
--
-- Returns how many there are.
-- Crash safety: one script. A host that dies before it leaves out what it would have told. Nothing
-- repairs that, since it is only shown. A repeat tells the same again.
-- include: clock
local ended, lines = KEYS[1], {}
for at = 2, #ARGV, 2 do
  lines[#lines + 1] = string.format('%.0f ', now_ms - tonumber(ARGV[at])) .. ARGV[at + 1]
end
if #lines > 0 then redis.call('LPUSH', ended, unpack(lines)) end
redis.call('LTRIM', ended, 0, tonumber(ARGV[1]) - 1)
return redis.call('LLEN', ended)
