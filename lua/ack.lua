#!lua flags=allow-oom
-- ack: messages are done; nothing of them is kept.
-- unack -> (nowhere)
--
-- KEYS[1] {dp:<queue>}:unack      zset  id -> end of the lease, unix seconds
-- KEYS[2] {dp:<queue>}:retry:cnt  hash  id -> retries left
-- KEYS[3] {dp:<queue>}:attempts   hash  id -> "failed:released"
-- KEYS[4] {dp:<queue>}:headers    hash  id -> JSON
-- KEYS[5] {dp:<queue>}:history    hash  id -> failed attempts
-- KEYS[6] {dp:<queue>}:stats      hash  totals
-- KEYS[6+i] {dp:<queue>}:msg:<id> string  the payload of message i
-- ARGV three for each message: id, retries left, "failed:released" (the token)
--
-- Returns for each message 1, or 0 when its lease is lost; then nothing of it is touched.
-- Crash safety: one script. A repeat answers 0 and changes nothing.
-- include: held
local unack, counts, attempts, headers, history, stats =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local ids, lefts, tries = claims(1, 3)
local ours = held(unack, counts, attempts, ids, lefts, tries)
redis.call('HLEN', headers)
redis.call('HLEN', history)
redis.call('HLEN', stats)

local result, done, payloads = {}, {}, {}
for i, id in ipairs(ids) do
  result[i] = ours[i] and 1 or 0
  if ours[i] then
    done[#done + 1] = id
    payloads[#payloads + 1] = KEYS[6 + i]
  end
end
if #done == 0 then return result end

redis.call('ZREM', unack, unpack(done))
redis.call('DEL', unpack(payloads))
redis.call('HDEL', counts, unpack(done))
for _, key in ipairs({attempts, headers, history}) do
  if redis.call('EXISTS', key) == 1 then redis.call('HDEL', key, unpack(done)) end
end
redis.call('HINCRBY', stats, 'acked', #done)
return result
