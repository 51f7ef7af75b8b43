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
-- KEYS[7] {dp:<queue>}:garbage   set   ids that become dead letters; read only
-- ARGV[1] the most to move, at most 1,000
-- ARGV[2] where to look for payloads that expire: a place in ready, retry and unack, counted as one
--         list without the newest 250 of ready and of retry, or -1 not to look. Those newest ones are
--         looked at each time, and 250 from that place on.
--
-- Returns a list, of which a host learns whether `unack_to_retry` and `collect_garbage` have work:
--   1  how many it moved
--   2  us until the next one is due, or -1
--   3  us until the next lease expires, or -1
--   4  how many become dead letters
--   5  how many wait in line
--   6  id of the next one that is due, or ""
--   7  place at which to look next, or -1 when it did not look
--   8  n, then ids of others (include/foreign.lua)
-- The first n ids are due, and still pending: their due times are cut to seconds, and `adopt` has to
-- read the payloads' expiries. The rest were promoted or seen in line: their payloads may expire, and
-- `persist` has to see to them.
-- Crash safety: the id is put into its list before it leaves pending, in one script. Any host
-- repeats this on every pass.
-- include: clock
-- include: foreign
local pending, ready, retry, attempts, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local found = redis.call('ZRANGEBYSCORE', pending, '-inf', score(now_ms), 'WITHSCORES',
  'LIMIT', 0, ARGV[1])
local result = {0, -1, -1, 0, 0, '', -1, 0}
local in_ready, in_retry = redis.call('LLEN', ready), redis.call('LLEN', retry)
local lease = redis.call('ZRANGE', KEYS[6], 0, 0, 'WITHSCORES')
local to_dead_letter = redis.call('SCARD', KEYS[7])

local ids, dues, cut, expiring, number = {}, {}, {}, {}, 0
-- Of many that are due, many are due at the same time.
local due_at, at_ms, at_text
for i = 1, #found, 2 do
  local id = found[i]
  if found[i + 1] ~= due_at then
    due_at = found[i + 1]
    at_ms = score_to_ms(due_at)
    at_text = string.format('%.0f', at_ms)
  end
  local is_others = is_foreign(id)
  if is_others and at_ms % 1000 == 0 then
    cut[#cut + 1] = id
  else
    number = number + 1
    ids[number], dues[number * 2 - 1], dues[number * 2] = id, id, at_text
    if is_others then expiring[#expiring + 1] = id end
  end
end

-- A delayqueue host promotes messages, too, and leaves the expiry of their payloads as it is.
local function look(from)
  local page = 250
  local skip, room, all = from, page, 0
  -- Returns how many there were.
  local function see(command, key, first, count)
    local seen = redis.call(command, key, first, first + count - 1)
    for _, id in ipairs(seen) do
      if is_foreign(id) then expiring[#expiring + 1] = id end
    end
    return #seen
  end
  -- The newest are at the head: behind a long line, the rest comes to them too late.
  if in_ready > 0 then see('LRANGE', ready, 0, page) end
  if in_retry > 0 then see('LRANGE', retry, 0, page) end
  for _, part in ipairs({
    {'LRANGE', ready, in_ready, page}, {'LRANGE', retry, in_retry, page},
    {'ZRANGE', KEYS[6], redis.call('ZCARD', KEYS[6]), 0},
  }) do
    local behind = math.max(part[3] - part[4], 0)
    all = all + behind
    if room > 0 and skip < behind then
      room = room - see(part[1], part[2], part[4] + skip, room)
    end
    skip = math.max(skip - behind, 0)
  end
  local next_at = from + page - room
  return room == 0 and next_at < all and next_at or 0
end
local place = tonumber(ARGV[2])
if place >= 0 then
  result[7] = (in_ready > 0 or in_retry > 0 or lease[1]) and look(place) or 0
end

if #ids > 0 then
  local fresh, again = ids, {}
  redis.call('HLEN', due)
  if redis.call('EXISTS', attempts) == 1 then
    local tries = redis.call('HMGET', attempts, unpack(ids))
    fresh = {}
    for i, id in ipairs(ids) do
      if tries[i] and string.sub(tries[i], 1, 2) ~= '0:' then
        again[#again + 1] = id
      else
        fresh[#fresh + 1] = id
      end
    end
  end
  if #fresh > 0 then redis.call('LPUSH', ready, unpack(fresh)) end
  if #again > 0 then redis.call('LPUSH', retry, unpack(again)) end
  redis.call('HSET', due, unpack(dues))
  if #cut > 0 then
    redis.call('ZREM', pending, unpack(ids))
  else
    redis.call('ZREMRANGEBYRANK', pending, 0, #ids - 1)
  end
end

local head = redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')
result[1] = #ids
result[2] = us_until(head[2] and score_to_ms(head[2]))
result[3] = us_until(lease[2] and score_to_ms(lease[2]))
result[4], result[5], result[6], result[8] = to_dead_letter, in_ready + in_retry + #ids, head[1] or '', #cut
for _, some in ipairs({cut, expiring}) do
  for _, id in ipairs(some) do result[#result + 1] = id end
end
return result
