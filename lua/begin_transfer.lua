#!lua
-- begin_transfer: begin a move to or from another store. Of two copies the later goes on alone.
-- (no message changes its state)
--
-- KEYS[1] {dp:<queue>}:moving       zset  id -> since when; read only
-- KEYS[2] {dp:<queue>}:moving:peer  hash  name: the other store; run: the copy that may move
-- ARGV[1] the other store
-- ARGV[2] the run of this copy
-- ARGV[3] 1 to go on although messages are moving to or from a store of another name
--
-- Returns "" or, when messages are moving to or from another store, its name; then nothing is
-- changed.
-- Crash safety: one script. The hash stays, so that a copy that was left behind stays refused.
-- Not allow-oom: a full Redis begins nothing.
local moving, peer = KEYS[1], KEYS[2]
local known = redis.call('HGET', peer, 'name')
if redis.call('ZCARD', moving) > 0 and known and known ~= ARGV[1] and ARGV[3] ~= '1' then
  return known
end
redis.call('HSET', peer, 'name', ARGV[1], 'run', ARGV[2])
return ''
