#!lua flags=allow-oom
-- heartbeat: a host says that it lives. Hosts that have been silent for too long are forgotten, and
-- so are ids that need not count as there any more.
--
-- KEYS[1] {dp:<queue>}:hosts       zset  host id -> last heartbeat, unix seconds
-- KEYS[2] {dp:<queue>}:hosts:info  hash  host id -> JSON
-- KEYS[3] {dp:<queue>}:dedup       zset  id -> until when it counts as there, unix seconds
-- KEYS[4] {dp:<queue>}:repeats     hash  id -> repeat that waits for the end of a run; read only
-- ARGV[1] host id
-- ARGV[2] what the host says of itself, JSON, or "" when it takes its leave
-- ARGV[3] ms of silence after which a host is forgotten
--
-- Returns the number of hosts left, and that of repeats, of which some may be for `after_run`.
-- Crash safety: a host that dies without leave is forgotten by the next heartbeat of any other.
-- Nothing depends on this list but what is shown of it: leases belong to messages.
-- include: clock
local hosts, info, dedup = KEYS[1], KEYS[2], KEYS[3]
redis.call('ZCARD', hosts)
redis.call('HLEN', info)
local repeats = redis.call('HLEN', KEYS[4])
local over = redis.call('ZRANGEBYSCORE', dedup, '-inf', score(now_ms), 'LIMIT', 0, 1000)
local silent = redis.call('ZRANGEBYSCORE', hosts, '-inf', score(now_ms - tonumber(ARGV[3])),
  'LIMIT', 0, 1000)
silent[#silent + 1] = ARGV[1]
redis.call('HDEL', info, unpack(silent))
redis.call('ZREM', hosts, unpack(silent))
if #over > 0 then redis.call('ZREM', dedup, unpack(over)) end
if ARGV[2] ~= '' then
  redis.call('HSET', info, ARGV[1], ARGV[2])
  redis.call('ZADD', hosts, score(now_ms), ARGV[1])
end
return {redis.call('ZCARD', hosts), repeats}
