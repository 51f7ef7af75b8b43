#!lua flags=allow-oom
-- persist: take the expiry off payloads of delayqueue producers. Their messages are in line, in flight
-- or moving, where they may wait for longer than that.
-- (no message changes its state)
--
-- KEYS[1] {dp:<queue>}:stats       hash    totals
-- KEYS[2] {dp:<queue>}:moving:was  hash    id -> "state:ms"
-- KEYS[2+i] {dp:<queue>}:msg:<id>  string  the payload of message i
-- ARGV[1] 1 when the messages are moving, else 0
-- ARGV[1+i] id, at most 1,000
--
-- Returns for each message:
-- * 0 when its payload does not expire
-- * 1 when its expiry was taken off
-- * the unix ms at which it is due, where that is more exact than `moving:was`, which has it from now on
--
-- Crash safety: one script. A repeat finds no expiry.
-- include: clock
-- include: foreign
local stats, was = KEYS[1], KEYS[2]
redis.call('HLEN', stats)
local ids = {unpack(ARGV, 2)}
local states = ARGV[1] == '1' and redis.call('HMGET', was, unpack(ids)) or {}
local result, expiring, exact = {}, {}, {}
for i, id in ipairs(ids) do
  result[i] = 0
  local expiry_ms = expiry_of(KEYS[2 + i])
  if expiry_ms >= 0 then
    expiring[#expiring + 1] = i
    result[i] = 1
    local at_ms = tonumber(string.match(states[i] or '', '^pending:(%d+)$'))
    if expiry_ms > 0 and at_ms and at_ms % 1000 == 0 then
      result[i] = exact_due(at_ms, expiry_ms)
      exact[#exact + 1] = id
      exact[#exact + 1] = string.format('pending:%.0f', result[i])
    end
  end
end
if #exact > 0 then redis.call('HSET', was, unpack(exact)) end
local sent = 0
for _, i in ipairs(expiring) do
  if redis.call('PERSIST', KEYS[2 + i]) == 1 then sent = sent + 1 else result[i] = 0 end
end
-- Its producer counts nothing, and who takes the expiry off is the first of us to see the message.
if sent > 0 then redis.pcall('HINCRBY', stats, 'sent', sent) end
return result
