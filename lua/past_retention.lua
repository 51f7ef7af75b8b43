#!lua flags=no-writes
-- past_retention: the dead letters that are to be kept no longer. Reads only.
--
-- KEYS[1] {dp:<queue>}:dead  zset  id -> time of death, unix seconds
-- ARGV[1] ms for which they are kept, "" for ever
-- ARGV[2] how many are kept, the latest ones; "" for all
-- ARGV[3] how many ids at most
--
-- Returns ids, of one kind or of the other: ask until there are none.
-- Crash safety: writes nothing. Who deletes them is told which were still there.
-- include: clock
local dead, age_ms, number, max = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local ids = {}
if age_ms then
  ids = redis.call('ZRANGE', dead, '-inf', score(now_ms - age_ms), 'BYSCORE', 'LIMIT', 0, max)
end
if number and #ids == 0 then
  ids = redis.call('ZRANGE', dead, string.format('%d', number),
    string.format('%d', number + max - 1), 'REV')
end
return ids
