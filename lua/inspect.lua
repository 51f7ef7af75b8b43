#!lua flags=no-writes
-- inspect: all that is known of one message, at one moment. Reads only.
--
-- KEYS[1]  {dp:<queue>}:pending    zset    id -> due time, unix seconds
-- KEYS[2]  {dp:<queue>}:ready      list    ids
-- KEYS[3]  {dp:<queue>}:unack      zset    id -> end of the lease
-- KEYS[4]  {dp:<queue>}:retry      list    ids
-- KEYS[5]  {dp:<queue>}:garbage    set     ids that become dead letters
-- KEYS[6]  {dp:<queue>}:dead       zset    id -> time of death
-- KEYS[7]  {dp:<queue>}:moving     zset    id -> since when
-- KEYS[8]  {dp:<queue>}:retry:cnt  hash    id -> retries left
-- KEYS[9]  {dp:<queue>}:attempts   hash    id -> "failed:released[:left]"
-- KEYS[10] {dp:<queue>}:headers    hash    id -> JSON
-- KEYS[11] {dp:<queue>}:history    hash    id -> failed attempts
-- KEYS[12] {dp:<queue>}:msg:<id>   string  the payload
-- ARGV[1]  id
--
-- Returns {} when nothing is known of the id.
-- Else {state, unix ms or -1, retries left, attempts, headers, history, payload}.
-- What there is none of is "". The payload is false when it is missing.
-- The time is when it is due (pending), the lease expires (unack) or it died (dead).
-- Crash safety: writes nothing.
-- Cost: grows with the two lists when the message is in neither sorted set (10 ms at 1,000,000).
local id = ARGV[1]
local function ms(text) return math.floor(tonumber(text) * 1000 + 0.5) end
local function at(state, text)
  -- What is no string is as good as missing.
  local payload = redis.pcall('GET', KEYS[12])
  return {state, text and ms(text) or -1, redis.call('HGET', KEYS[8], id) or '',
    redis.call('HGET', KEYS[9], id) or '', redis.call('HGET', KEYS[10], id) or '',
    redis.call('HGET', KEYS[11], id) or '', type(payload) == 'string' and payload}
end
for _, place in ipairs({{'pending', 1}, {'unack', 3}, {'dead', 6}}) do
  local text = redis.call('ZSCORE', KEYS[place[2]], id)
  if text then return at(place[1], text) end
end
if redis.call('ZSCORE', KEYS[7], id) then return at('moving', false) end
if redis.call('SISMEMBER', KEYS[5], id) == 1 then return at('garbage', false) end
for _, place in ipairs({{'ready', 2}, {'retry', 4}}) do
  if redis.call('LPOS', KEYS[place[2]], id) then return at(place[1], false) end
end
return {}
