-- marks: where an id is and what is kept of it, at one moment. Reads only. After `clock`.
--
-- KEYS[1] to KEYS[13] are pending, ready, unack, retry, garbage, dead, moving, retry:cnt, attempts,
-- due, headers, history and moving:was. A key of a wrong type is passed over.

-- Each is a bit of a number; src/store/redis/audit/presence.rs names them the same.
local PENDING, READY, UNACK, RETRY, GARBAGE, DEAD, MOVING = 1, 2, 4, 8, 16, 32, 64
local READY_TWICE, RETRY_TWICE = 128, 256
local PAYLOAD, NO_STRING = 512, 1024
-- retry:cnt, attempts, due, headers, history, moving:was
local FIELDS = {2048, 4096, 8192, 16384, 32768, 65536}
local LEASE_RUNS, UNREADABLE = 131072, 262144

-- How often an id is looked for in one list.
local COPIES_MAX = 10000

local function usable(key, kind)
  local found = redis.call('TYPE', key).ok
  return found == 'none' or found == kind
end

local types = {'zset', 'list', 'zset', 'list', 'set', 'zset', 'zset',
  'hash', 'hash', 'hash', 'hash', 'hash', 'hash'}
local readable, unreadable = {}, 0
for k, kind in ipairs(types) do
  readable[k] = usable(KEYS[k], kind)
  if k <= 7 and not readable[k] then unreadable = UNREADABLE end
end

-- How often the id is in a list, at most COPIES_MAX.
local function copies(list, id)
  return #redis.call('LPOS', list, id, 'COUNT', COPIES_MAX)
end

local function marks(id, payload)
  local sum = unreadable
  for k, bit in pairs({[1] = PENDING, [3] = UNACK, [6] = DEAD, [7] = MOVING}) do
    local at = readable[k] and redis.call('ZSCORE', KEYS[k], id)
    if at then sum = sum + bit end
    if at and k == 3 and score_to_ms(at) > now_ms then sum = sum + LEASE_RUNS end
  end
  for k, bits in pairs({[2] = {READY, READY_TWICE}, [4] = {RETRY, RETRY_TWICE}}) do
    local found = readable[k] and copies(KEYS[k], id) or 0
    if found > 0 then sum = sum + bits[1] end
    if found > 1 then sum = sum + bits[2] end
  end
  if readable[5] and redis.call('SISMEMBER', KEYS[5], id) == 1 then sum = sum + GARBAGE end
  for f, bit in ipairs(FIELDS) do
    if readable[7 + f] and redis.call('HEXISTS', KEYS[7 + f], id) == 1 then sum = sum + bit end
  end
  local kind = redis.call('TYPE', payload).ok
  if kind ~= 'none' then sum = sum + PAYLOAD end
  if kind ~= 'none' and kind ~= 'string' then sum = sum + NO_STRING end
  return sum
end
