#!lua flags=allow-oom
-- export: take messages out of every host's reach, on their way to another store. What an earlier
-- call took comes first, so that an interrupted copy goes on with it.
-- ready, retry, pending, garbage, dead -> moving
--
-- KEYS[1] {dp:<queue>}:ready        list    ids
-- KEYS[2] {dp:<queue>}:retry        list    ids
-- KEYS[3] {dp:<queue>}:pending      zset    id -> due time, unix seconds
-- KEYS[4] {dp:<queue>}:garbage      set     ids that become dead letters
-- KEYS[5] {dp:<queue>}:dead         zset    id -> time of death, unix seconds
-- KEYS[6] {dp:<queue>}:due          hash    id -> unix ms at which it became due
-- KEYS[7] {dp:<queue>}:moving       zset    id -> since when, unix seconds
-- KEYS[8] {dp:<queue>}:moving:was   hash    id -> "state:ms", ms being -1 for none
-- KEYS[9] {dp:<queue>}:moving:peer  hash    run: the copy that may move; read only
-- ARGV[1] the most to take, 1 to 1,000
-- ARGV[2] the run of this copy
--
-- Returns {0} when another copy has begun since, else {1, two for each message: id, "state:ms"}.
-- Crash safety: one script. What it took stays in moving until it is discarded or admitted.
-- include: clock
-- include: run
local ready, retry, pending, garbage, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local due, moving, was, peer = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
if not is_current(peer, ARGV[2]) then return {0} end
redis.call('HLEN', was)

local left, result = tonumber(ARGV[1]), {1}
local under_way = redis.call('ZRANGE', moving, 0, left - 1)
if #under_way > 0 then
  local states = redis.call('HMGET', was, unpack(under_way))
  for i, id in ipairs(under_way) do
    result[#result + 1] = id
    result[#result + 1] = states[i] or 'garbage:-1'
  end
  return result
end

-- Everything is read before anything is written.
local ids, states, taken = {}, {}, {}
local function take(id, state)
  ids[#ids + 1] = id
  states[#states + 1] = state
  left = left - 1
end
for _, list in ipairs({{'ready', ready}, {'retry', retry}}) do
  local tail = left > 0 and redis.call('LRANGE', list[2], -left, -1) or {}
  taken[list[2]] = #tail
  local dues = #tail > 0 and redis.call('HMGET', due, unpack(tail)) or {}
  for i = #tail, 1, -1 do take(tail[i], list[1] .. ':' .. (dues[i] or '-1')) end
end
local function take_scored(name, key)
  local found = left > 0 and redis.call('ZRANGE', key, 0, left - 1, 'WITHSCORES') or {}
  taken[key] = #found / 2
  for i = 1, #found, 2 do
    take(found[i], string.format('%s:%.0f', name, score_to_ms(found[i + 1])))
  end
end
take_scored('pending', pending)
local dead_lettered = left > 0 and redis.call('SRANDMEMBER', garbage, left) or {}
for _, id in ipairs(dead_lettered) do take(id, 'garbage:-1') end
take_scored('dead', dead)
if #ids == 0 then return result end

local marks, fields = {}, {}
for i, id in ipairs(ids) do
  marks[2 * i - 1], marks[2 * i] = score(now_ms), id
  fields[2 * i - 1], fields[2 * i] = id, states[i]
  result[2 * i], result[2 * i + 1] = id, states[i]
end
redis.call('HSET', was, unpack(fields))
redis.call('ZADD', moving, unpack(marks))
for _, list in ipairs({ready, retry}) do
  if taken[list] > 0 then redis.call('LTRIM', list, 0, -taken[list] - 1) end
end
for _, key in ipairs({pending, dead}) do
  if taken[key] > 0 then redis.call('ZREMRANGEBYRANK', key, 0, taken[key] - 1) end
end
if #dead_lettered > 0 then redis.call('SREM', garbage, unpack(dead_lettered)) end
return result
