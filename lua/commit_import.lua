#!lua flags=allow-oom
-- commit_import: put messages that the other store has removed into their states.
-- moving -> ready, retry, pending, garbage or dead
--
-- KEYS[1] {dp:<queue>}:moving       zset    id -> since when, unix seconds
-- KEYS[2] {dp:<queue>}:moving:was   hash    id -> "state:ms"
-- KEYS[3] {dp:<queue>}:moving:peer  hash    run: the copy that may move; read only
-- KEYS[4] {dp:<queue>}:ready        list    ids, LPUSH in, RPOP out
-- KEYS[5] {dp:<queue>}:retry        list    ids, LPUSH in, RPOP out
-- KEYS[6] {dp:<queue>}:pending      zset    id -> due time, unix seconds
-- KEYS[7] {dp:<queue>}:garbage      set     ids that become dead letters
-- KEYS[8] {dp:<queue>}:dead         zset    id -> time of death, unix seconds
-- KEYS[9] {dp:<queue>}:due          hash    id -> unix ms at which it became due
-- ARGV[1] channel that wakes sleeping hosts
-- ARGV[2] the run of this copy
-- ARGV[3..] ids, those that are to be first in line first
--
-- Returns 0 when another copy has begun since, else 1. Ids that are not moving are left alone.
-- Crash safety: the id is in its state before it leaves moving, in one script. A repeat finds nothing.
-- include: clock
-- include: run
local moving, was, peer = KEYS[1], KEYS[2], KEYS[3]
if not is_current(peer, ARGV[2]) then return 0 end
local ids = {unpack(ARGV, 3)}
if #ids == 0 then return 1 end
local states = redis.call('HMGET', was, unpack(ids))
local since = redis.call('ZMSCORE', moving, unpack(ids))
redis.call('LLEN', KEYS[4])
redis.call('LLEN', KEYS[5])
redis.call('ZCARD', KEYS[6])
redis.call('SCARD', KEYS[7])
redis.call('ZCARD', KEYS[8])
redis.call('HLEN', KEYS[9])

local put = {ready = {}, retry = {}, pending = {}, garbage = {}, dead = {}, due = {}}
local gone, seen = {}, {}
for i, id in ipairs(ids) do
  if since[i] and not seen[id] then
    seen[id] = true
    local state, ms = string.match(states[i] or '', '^(%a+):(%-?%d+)$')
    if not put[state] or state == 'due' then state, ms = 'garbage', '-1' end
    local to = put[state]
    if state == 'pending' or state == 'dead' then to[#to + 1] = score(math.max(tonumber(ms), 0)) end
    to[#to + 1] = id
    if (state == 'ready' or state == 'retry') and ms ~= '-1' then
      put.due[#put.due + 1] = id
      put.due[#put.due + 1] = ms
    end
    gone[#gone + 1] = id
  end
end
if #gone == 0 then return 1 end
local function into(command, key, values)
  if #values > 0 then redis.call(command, key, unpack(values)) end
end
into('LPUSH', KEYS[4], put.ready)
into('LPUSH', KEYS[5], put.retry)
into('ZADD', KEYS[6], put.pending)
into('SADD', KEYS[7], put.garbage)
into('ZADD', KEYS[8], put.dead)
into('HSET', KEYS[9], put.due)
redis.call('HDEL', was, unpack(gone))
redis.call('ZREM', moving, unpack(gone))
-- A hint, which may fail or be lost: hosts poll as well.
redis.pcall('PUBLISH', ARGV[1], '')
return 1
