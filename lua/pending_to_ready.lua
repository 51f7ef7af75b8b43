#!lua flags=allow-oom
-- pending_to_ready: promote messages whose time has come, earliest first.
-- pending -> ready when never delivered before, else pending -> retry
--
-- KEYS[1] {dp:<queue>}:pending   zset  id -> due time, unix seconds
-- KEYS[2] {dp:<queue>}:ready     list  ids, LPUSH in, RPOP out
-- KEYS[3] {dp:<queue>}:retry     list  ids, LPUSH in, RPOP out
-- KEYS[4] {dp:<queue>}:attempts  hash  id -> "failed:released"; absent before the first failure
-- KEYS[5] {dp:<queue>}:due       hash  id -> unix ms at which a waiting message became due
-- KEYS[6] {dp:<queue>}:unack     zset  id -> end of the lease, unix seconds; read only
-- KEYS[7] {dp:<queue>}:garbage   set   ids to bury; read only
-- ARGV[1] the most to move, at most 1,000
--
-- Returns {moved, us until the next one is due or -1, us until the next lease ends or -1, number to
-- bury, number that waits in line, id of the next one that is due or "", ids...}: with the third and the
-- fourth a host knows whether `unack_to_retry` and `collect_garbage` have anything to do. The last ids
-- are those promoted whose form is not ours (UUID version 7): their payload may have a TTL, which the
-- caller removes.
-- Crash safety: the id is put into its list before it leaves pending, in one script. Any host
-- repeats this on every pass.
-- include: clock
local pending, ready, retry, attempts, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local found = redis.call('ZRANGEBYSCORE', pending, '-inf', score(now_ms), 'WITHSCORES',
  'LIMIT', 0, ARGV[1])
local moved = #found / 2
local result = {moved, -1, -1, 0, 0, ''}
local waiting = redis.call('LLEN', ready) + redis.call('LLEN', retry) + moved
local lease = redis.call('ZRANGE', KEYS[6], 0, 0, 'WITHSCORES')
local to_bury = redis.call('SCARD', KEYS[7])

if moved > 0 then
  local ids, dues, fresh, again = {}, {}, {}, {}
  for i = 1, moved do ids[i] = found[2 * i - 1] end
  local tries = redis.call('EXISTS', attempts) == 1
    and redis.call('HMGET', attempts, unpack(ids)) or {}
  redis.call('HLEN', due)
  for i, id in ipairs(ids) do
    dues[2 * i - 1] = id
    dues[2 * i] = string.format('%.0f', score_to_ms(found[2 * i]))
    if tries[i] and string.sub(tries[i], 1, 2) ~= '0:' then
      again[#again + 1] = id
    else
      fresh[#fresh + 1] = id
    end
    local version = string.sub(id, 15, 15)
    if version ~= '7' and version ~= '8' then result[#result + 1] = id end
  end
  if #fresh > 0 then redis.call('LPUSH', ready, unpack(fresh)) end
  if #again > 0 then redis.call('LPUSH', retry, unpack(again)) end
  redis.call('HSET', due, unpack(dues))
  redis.call('ZREMRANGEBYRANK', pending, 0, moved - 1)
end

local head = redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')
result[2] = us_until(head[2] and score_to_ms(head[2]))
result[3] = us_until(lease[2] and score_to_ms(lease[2]))
result[4], result[5], result[6] = to_bury, waiting, head[1] or ''
return result
