#!lua
-- import: keep messages that another store has exported, out of every host's reach until that
-- store has removed them.
-- (nowhere) -> moving
--
-- KEYS[1] {dp:<queue>}:moving       zset    id -> since when, unix seconds
-- KEYS[2] {dp:<queue>}:moving:was   hash    id -> "state:ms"
-- KEYS[3] {dp:<queue>}:moving:peer  hash    run: the copy that may move; read only
-- KEYS[4] {dp:<queue>}:retry:cnt    hash    id -> retries left
-- KEYS[5] {dp:<queue>}:attempts     hash    id -> "failed:released[:left]"
-- KEYS[6] {dp:<queue>}:headers      hash    id -> JSON
-- KEYS[7] {dp:<queue>}:history      hash    id -> failed attempts
-- KEYS[8] {dp:<queue>}:dead         zset    id -> time of death; read only
-- KEYS[9] {dp:<queue>}:pending      zset    id -> due time; read only
-- KEYS[10] {dp:<queue>}:ready       list    ids; read only
-- KEYS[11] {dp:<queue>}:unack       zset    id -> end of the lease; read only
-- KEYS[12] {dp:<queue>}:retry       list    ids; read only
-- KEYS[13] {dp:<queue>}:garbage     set     ids that become dead letters; read only
-- KEYS[13+i] {dp:<queue>}:msg:<id>  string  the payload of message i
-- ARGV[1] the run of this copy
-- ARGV[2..] seven for each message: id, "state:ms", retries left or "" (a dead letter), attempts
--           or "", headers or "", history or "", payload with a leading "+", or "" when missing
--
-- Returns 0 when another copy has begun since, else how many messages it has seen to.
-- It ends early after 20 ids without their payload, which have to be looked for. Call it with the rest.
-- Crash safety: one script. A message that is here already is left as it is, so a repeat makes no
-- second one. A payload that it has lost here is written again.
-- Not allow-oom: a full Redis takes nothing in.
-- include: clock
-- include: run
-- include: place
local moving, was, peer, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[8]
if not is_current(peer, ARGV[1]) then return 0 end
redis.call('HLEN', was)
for k = 4, 7 do redis.call('HLEN', KEYS[k]) end

-- True for an id that is here without its payload.
local places = {pending = KEYS[9], ready = KEYS[10], unack = KEYS[11], retry = KEYS[12],
  garbage = KEYS[13], moving = moving}
local looks = 0
local function is_here(id)
  if redis.call('HEXISTS', KEYS[4], id) == 0 and redis.call('HEXISTS', KEYS[5], id) == 0 then
    return false
  end
  looks = looks + 1
  return place_of(places, id) ~= 'nowhere'
end

local marks, states, payloads, seen = {}, {}, {}, {}
local fields = {{}, {}, {}, {}}
local done = 0
for i = 1, #KEYS - 13 do
  if looks == 20 then break end
  done = i
  local base, key = 2 + (i - 1) * 7, KEYS[13 + i]
  local id, payload = ARGV[base], ARGV[base + 6]
  if not seen[id] and redis.call('EXISTS', key) == 0
    and not redis.call('ZSCORE', moving, id) and not redis.call('ZSCORE', dead, id) then
    seen[id] = true
    if not is_here(id) then
      marks[#marks + 1] = score(now_ms)
      marks[#marks + 1] = id
      states[#states + 1] = id
      states[#states + 1] = ARGV[base + 1]
      for f = 1, 4 do
        local value = ARGV[base + 1 + f]
        if value ~= '' then
          fields[f][#fields[f] + 1] = id
          fields[f][#fields[f] + 1] = value
        end
      end
    end
    if payload ~= '' then
      payloads[#payloads + 1] = key
      payloads[#payloads + 1] = string.sub(payload, 2)
    end
  end
end
if #payloads > 0 then redis.call('MSET', unpack(payloads)) end
if #states == 0 then return done end
for f = 1, 4 do
  if #fields[f] > 0 then redis.call('HSET', KEYS[3 + f], unpack(fields[f])) end
end
redis.call('HSET', was, unpack(states))
redis.call('ZADD', moving, unpack(marks))
return done
