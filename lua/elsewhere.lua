#!lua flags=no-writes
-- elsewhere: which ids are messages of a queue of the same name under another prefix. Reads only.
-- Payloads of both have the same names, so each sees those of the other.
--
-- KEYS[1]  {<other>:<queue>}:pending    zset  id -> due time
-- KEYS[2]  {<other>:<queue>}:ready      list  ids
-- KEYS[3]  {<other>:<queue>}:unack      zset  id -> end of the lease
-- KEYS[4]  {<other>:<queue>}:retry      list  ids
-- KEYS[5]  {<other>:<queue>}:retry:cnt  hash  id -> retries left
-- KEYS[6]  {<other>:<queue>}:garbage    set   ids that become dead letters
-- KEYS[7]  {<other>:<queue>}:dead       zset  id -> time of death
-- KEYS[8]  {<other>:<queue>}:moving     zset  id -> since when
-- ARGV[i]  id, at most 100; fewer when the lists are long, which are walked through for
--         each id (see `audit`)
--
-- Returns for each id 1 when it is in one of them, else 0. A key of a wrong type is none of a queue's and
-- is passed over.
-- Crash safety: writes nothing.
local looks = {zset = 'ZSCORE', hash = 'HGET', set = 'SISMEMBER', list = 'LPOS'}
local types = {'zset', 'list', 'zset', 'list', 'hash', 'set', 'zset', 'zset'}
local usable = {}
for k, kind in ipairs(types) do usable[k] = redis.call('TYPE', KEYS[k]).ok == kind end

local function is_there(id)
  for k, kind in ipairs(types) do
    local found = usable[k] and redis.call(looks[kind], KEYS[k], id)
    if found and not (kind == 'set' and found == 0) then return 1 end
  end
  return 0
end

local result = {}
for i, id in ipairs(ARGV) do result[i] = is_there(id) end
return result
