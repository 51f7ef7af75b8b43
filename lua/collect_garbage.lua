#!lua flags=allow-oom
-- collect_garbage: dead-letter what is out of retries or rejected. The payload, headers and history stay.
-- garbage -> dead letter
-- garbage -> (nowhere) when neither payload nor retries are left of the id
-- out of garbage alone when the id was sent again and is in line
--
-- KEYS[1] {dp:<queue>}:garbage    set   ids that become dead letters
-- KEYS[2] {dp:<queue>}:dead       zset  id -> time of death, unix seconds
-- KEYS[3] {dp:<queue>}:retry:cnt  hash  id -> retries left
-- KEYS[4] {dp:<queue>}:attempts   hash  id -> "failed:released"; of a dead letter, and of an id whose
--                                       retries others took away, "failed:released:left", so that a
--                                       redrive can give the whole budget again
-- KEYS[5] {dp:<queue>}:stats      hash  totals
-- KEYS[6] {dp:<queue>}:history    hash  id -> failed attempts, one JSON object a line
-- KEYS[7] {dp:<queue>}:headers    hash  id -> JSON
-- KEYS[8] {dp:<queue>}:due        hash  id -> unix ms at which it became due
-- KEYS[9] {dp:<queue>}:pending    zset  id -> due time; read only
-- KEYS[10] {dp:<queue>}:ready     list  ids; read only
-- KEYS[11] {dp:<queue>}:unack     zset  id -> end of the lease; read only
-- KEYS[12] {dp:<queue>}:retry     list  ids; read only
-- KEYS[12+i] {dp:<queue>}:msg:<id> string  the payload of ARGV[1+i]
-- ARGV[1] the most to move, at most 1,000
-- ARGV[1+i] ids that become dead letters and no others, at most 1,000; without any, those that are found
--
-- Returns {dead_lettered, dropped, ids...}. The ids were found and are no dead letters yet. Their payloads
-- have to be looked at: they are of others, or have no retries or no attempts on record. Name them in a
-- second call. Of these, 20 a call are looked for in line. The others stay for the next.
-- Crash safety: the id is a dead letter before it leaves garbage, in one script. Any host repeats
-- it on every pass. A repeat overwrites the same entry.
-- include: clock
-- include: foreign
-- include: fail
-- include: place
local garbage, dead, counts, attempts, stats, history =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local named = {unpack(ARGV, 2)}
local is_named = #named > 0
local found = is_named and named or redis.call('SRANDMEMBER', garbage, ARGV[1])
if #found == 0 then return {0, 0} end
local left = redis.call('HMGET', counts, unpack(found))
local tries = redis.call('HMGET', attempts, unpack(found))
local lines = is_named and redis.call('HMGET', history, unpack(found))
local is_garbage = is_named and redis.call('SMISMEMBER', garbage, unpack(found))
redis.call('ZCARD', dead)
redis.call('HLEN', stats)
redis.call('HLEN', KEYS[7])
redis.call('HLEN', KEYS[8])

local result, ids, deaths, kept, reasons = {0, 0}, {}, {}, {}, {}
local expiring, empty, in_line, looks = {}, {}, {}, 0
local places = {pending = KEYS[9], ready = KEYS[10], unack = KEYS[11], retry = KEYS[12],
  garbage = garbage}
local function dead_letter(i, id)
  ids[#ids + 1] = id
  deaths[#deaths + 1] = score(now_ms)
  deaths[#deaths + 1] = id
  local failed, released = string.match(tries[i] or '0:0', '^(%d+):(%d+)')
  kept[#kept + 1] = id
  kept[#kept + 1] = string.format('%d:%d:%d', failed or 0, released or 0,
    tonumber(left[i] or '0') or 0)
  if not left[i] and not string.match(tries[i] or '', ':%d+:%d+$') then
    -- Only delayqueue takes the retries away, when it gives up. It keeps no reason.
    reasons[#reasons + 1] = id
    reasons[#reasons + 1] = appended(lines[i], string.format(
      '{"attempt":%d,"at_ms":%.0f,"class":"out-of-retries","reason":"%s"}',
      (failed or 0) + 1, now_ms, 'a delayqueue consumer gave up on it'))
  end
end
for i, id in ipairs(found) do
  if not is_named then
    if left[i] and tries[i] and not is_foreign(id) then dead_letter(i, id) else result[#result + 1] = id end
  elseif is_garbage[i] == 1 then
    local key = KEYS[12 + i]
    local is_there = redis.call('EXISTS', key) == 1
    -- delayqueue takes the retries away when it gives up, and ours note an attempt. An id with retries
    -- and no attempts may have been sent again since.
    local may_be_in_line = left[i] and not tries[i]
    if may_be_in_line then looks = looks + 1 end
    if may_be_in_line and looks <= 20 and place_of(places, id) == 'live' then
      in_line[#in_line + 1] = id
    elseif not may_be_in_line or looks <= 20 then
      if is_there or left[i] then dead_letter(i, id) else empty[#empty + 1] = id end
      if is_there then expiring[#expiring + 1] = key end
    end
  end
end

if #ids > 0 then
  redis.call('ZADD', dead, unpack(deaths))
  redis.call('HSET', attempts, unpack(kept))
  if #reasons > 0 then redis.call('HSET', history, unpack(reasons)) end
  redis.call('HDEL', counts, unpack(ids))
  redis.call('SREM', garbage, unpack(ids))
  redis.pcall('HINCRBY', stats, 'dead', #ids)
end
persist_all(expiring, stats)
if #empty > 0 then
  for _, key in ipairs({attempts, history, KEYS[7], KEYS[8]}) do
    redis.call('HDEL', key, unpack(empty))
  end
  redis.call('SREM', garbage, unpack(empty))
  redis.pcall('HINCRBY', stats, 'dropped', #empty)
end
if #in_line > 0 then redis.call('SREM', garbage, unpack(in_line)) end
result[1], result[2] = #ids, #empty
return result
