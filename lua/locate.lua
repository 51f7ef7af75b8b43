#!lua flags=no-writes
-- locate: where an id is whose payload is gone. Reads only. One at a time: its cost grows with the
-- length of the two lists (as that of `cancel`).
--
-- KEYS[1] {dp:<queue>}:pending  zset  id -> due time
-- KEYS[2] {dp:<queue>}:ready    list  ids
-- KEYS[3] {dp:<queue>}:unack    zset  id -> end of the lease
-- KEYS[4] {dp:<queue>}:retry    list  ids
-- KEYS[5] {dp:<queue>}:garbage  set   ids that become dead letters
-- KEYS[6] {dp:<queue>}:moving   zset  id -> since when
-- ARGV[1] id
--
-- Returns live (it is to be handled), kept (garbage or moving) or nowhere.
-- Crash safety: writes nothing. A script of its own that only reads, so that producers need no more
-- than read access to where hosts keep messages.
-- include: place
return place_of({pending = KEYS[1], ready = KEYS[2], unack = KEYS[3], retry = KEYS[4],
  garbage = KEYS[5], moving = KEYS[6]}, ARGV[1])
