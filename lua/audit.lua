#!lua flags=no-writes
-- audit: where some ids are and what is kept of them, at one moment. Reads only.
--
-- KEYS[1]  {dp:<queue>}:pending    zset  id -> due time
-- KEYS[2]  {dp:<queue>}:ready      list  ids
-- KEYS[3]  {dp:<queue>}:unack      zset  id -> end of the lease, unix seconds
-- KEYS[4]  {dp:<queue>}:retry      list  ids
-- KEYS[5]  {dp:<queue>}:garbage    set   ids that become dead letters
-- KEYS[6]  {dp:<queue>}:dead       zset  id -> time of death
-- KEYS[7]  {dp:<queue>}:moving     zset  id -> since when
-- KEYS[8]  {dp:<queue>}:retry:cnt  hash  id -> retries left
-- KEYS[9]  {dp:<queue>}:attempts   hash  id -> "failed:released[:left]"
-- KEYS[10] {dp:<queue>}:due        hash  id -> unix ms at which it became due
-- KEYS[11] {dp:<queue>}:headers    hash  id -> JSON
-- KEYS[12] {dp:<queue>}:history    hash  id -> failed attempts
-- KEYS[13] {dp:<queue>}:moving:was hash  id -> "state:ms"
-- KEYS[13+i] {dp:<queue>}:msg:<id> string  the payload of id i
-- ARGV[i]  id, at most 100; fewer when the lists are long, which are walked through for
--         each id (15 ms at 1,000,000 ids)
--
-- Returns for each id a sum of bits (`include/presence.lua`), 0 when nothing is known of it.
-- Crash safety: writes nothing.
-- include: clock
-- include: presence
local result = {}
for i, id in ipairs(ARGV) do result[i] = marks(id, KEYS[13 + i]) end
return result
