#!lua flags=allow-oom
-- audit_repair: put ids that are in no state, or in more than one, into one state or out of all.
-- any states -> the one that is named; a payload or an id without the other -> dead letter
--
-- KEYS[1]  {dp:<queue>}:pending    zset  id -> due time
-- KEYS[2]  {dp:<queue>}:ready      list  ids, LPUSH in, RPOP out
-- KEYS[3]  {dp:<queue>}:unack      zset  id -> end of the lease, unix seconds
-- KEYS[4]  {dp:<queue>}:retry      list  ids, LPUSH in, RPOP out
-- KEYS[5]  {dp:<queue>}:garbage    set   ids that become dead letters
-- KEYS[6]  {dp:<queue>}:dead       zset  id -> time of death, unix seconds
-- KEYS[7]  {dp:<queue>}:moving     zset  id -> since when
-- KEYS[8]  {dp:<queue>}:retry:cnt  hash  id -> retries left
-- KEYS[9]  {dp:<queue>}:attempts   hash  id -> "failed:released"; of a dead letter with ":left"
-- KEYS[10] {dp:<queue>}:due        hash  id -> unix ms at which it became due
-- KEYS[11] {dp:<queue>}:headers    hash  id -> JSON
-- KEYS[12] {dp:<queue>}:history    hash  id -> failed attempts
-- KEYS[13] {dp:<queue>}:moving:was hash  id -> "state:ms"
-- KEYS[14] {dp:<queue>}:stats      hash  totals
-- KEYS[14+i] {dp:<queue>}:msg:<id> string  the payload of id i
-- ARGV five for each id, at most 100 (see `audit`):
--      id
--      the sum of bits that `audit` answered
--      the number of the KEYS of its only state from now on; 0 when nothing is kept of it
--      class and reason for its history if it becomes a dead letter (6); they need no escapes in JSON
--
-- Returns for each id:
-- *  1 done
-- *  0 it is not as it was found, so nothing or not all was done: look again
-- * -1 it cannot be done, since a key has a wrong type
--
-- Crash safety: one script for each id's whole repair. It is put where it goes before it is taken
-- from where it was. A repeat finds other bits and does nothing.
-- include: clock
-- include: fail
-- include: presence
local function dead_letter(id, class, reason)
  local left = redis.call('HGET', KEYS[8], id)
  local failed, released = string.match(redis.call('HGET', KEYS[9], id) or '0:0', '^(%d+):(%d+)')
  local lines = redis.call('HGET', KEYS[12], id)
  failed, released = tonumber(failed or 0), tonumber(released or 0)
  local record = string.format('{"attempt":%d,"at_ms":%.0f,"class":"%s","reason":"%s"}',
    failed + 1, now_ms, class, reason)
  -- As if this had been an attempt, so that a redrive gives the budget that it had, where it is known.
  local kept = string.format('%d:%d:%d', left and failed + 1 or failed, released,
    tonumber(left or '0') or 0)
  redis.call('ZADD', KEYS[6], score(now_ms), id)
  redis.call('HSET', KEYS[9], id, kept)
  redis.call('HSET', KEYS[12], id, appended(lines, record))
  redis.call('HDEL', KEYS[8], id)
  redis.pcall('HINCRBY', KEYS[14], 'dead', 1)
end

local function has(sum, bit) return math.floor(sum / bit) % 2 == 1 end

-- Takes the id out of a place where it is, or, of a list that it stays in, what is too much. True
-- when all of that is done.
local function take_out(place, id, target)
  if types[place] == 'zset' and place ~= target then
    redis.call('ZREM', KEYS[place], id)
  elseif types[place] == 'set' and place ~= target then
    redis.call('SREM', KEYS[place], id)
  elseif types[place] == 'list' and place ~= target then
    redis.call('LREM', KEYS[place], 0, id)
  elseif types[place] == 'list' then
    local found = copies(KEYS[place], id)
    -- From the left, so that the next one out is what stays.
    if found > 1 then redis.call('LREM', KEYS[place], found - 1, id) end
    return found < COPIES_MAX
  end
  return true
end

local can_dead_letter = readable[6] and readable[8] and readable[9] and readable[12]
  and usable(KEYS[14], 'hash')
local result = {}
for i = 1, #KEYS - 14 do
  local base = 5 * i - 4
  local id, expected, target = ARGV[base], tonumber(ARGV[base + 1]), tonumber(ARGV[base + 2])
  local dead_lettered = target == 6 and not has(expected, DEAD)
  local is_dropped = target == 0 and expected % 128 > 0
  if marks(id, KEYS[14 + i]) ~= expected then
    result[i] = 0
  elseif dead_lettered and not can_dead_letter or is_dropped and not readable[8] then
    result[i] = -1
  else
    result[i] = 1
    if dead_lettered then dead_letter(id, ARGV[base + 3], ARGV[base + 4]) end
    -- As a host counts what it drops.
    if is_dropped then redis.pcall('HINCRBY', KEYS[14], 'dropped', 1) end
    -- A dead letter is kept for longer than what a delayqueue producer allowed. Who takes the expiry
    -- off is the first of us to see the message.
    if target == 6 and redis.call('PERSIST', KEYS[14 + i]) == 1 then
      redis.pcall('HINCRBY', KEYS[14], 'sent', 1)
    end
    for place = 1, 7 do
      if has(expected, 2 ^ (place - 1)) and not take_out(place, id, target) then result[i] = 0 end
    end
    -- `due` is of ready, retry and moving, `moving:was` of moving.
    local stays = {[10] = target == 2 or target == 4 or target == 7, [13] = target == 7}
    for f = 8, 13 do
      local is_stale = stays[f] == false and unreadable == 0
      if readable[f] and (target == 0 or is_stale) then redis.call('HDEL', KEYS[f], id) end
    end
  end
end
return result
