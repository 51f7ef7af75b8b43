#!lua
-- send: accept new messages.
-- (nowhere) -> ready when already due, else -> pending
--
-- KEYS[1] {dp:<queue>}:pending    zset    id -> due time, unix seconds, three decimals
-- KEYS[2] {dp:<queue>}:ready      list    ids, LPUSH in, RPOP out
-- KEYS[3] {dp:<queue>}:retry:cnt  hash    id -> retries left
-- KEYS[4] {dp:<queue>}:headers    hash    id -> JSON; only of messages that have headers
-- KEYS[5] {dp:<queue>}:stats      hash    totals
-- KEYS[5+i] {dp:<queue>}:msg:<id> string  the payload of message i
-- ARGV[1] channel that wakes sleeping hosts
-- ARGV[2..] five for each message: id, payload, due ("+N": N ms from now, else unix ms),
--           retries, headers as JSON or ""
--
-- Returns for each message its due time in unix ms, or 0 when the id was there already and
-- nothing was written for it.
-- Crash safety: all or nothing. A sender that lost the reply sends the same ids again.
-- Not allow-oom: a full Redis refuses new messages before anything is written.
-- include: clock
local pending, ready, counts, headers, stats = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local channel = ARGV[1]
local head = redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')
redis.call('LLEN', ready)
redis.call('HLEN', counts)
redis.call('HLEN', headers)
redis.call('HLEN', stats)

local result, seen = {}, {}
local payloads, budgets, later, at_once, extras = {}, {}, {}, {}, {}
local earliest = false
for i = 1, #KEYS - 5 do
  local base = 2 + (i - 1) * 5
  local id, payload, due = ARGV[base], ARGV[base + 1], ARGV[base + 2]
  local key = KEYS[5 + i]
  if seen[id] or redis.call('EXISTS', key) == 1 then
    result[i] = 0
  else
    seen[id] = true
    local due_ms
    if string.sub(due, 1, 1) == '+' then
      local delay_ms = tonumber(string.sub(due, 2))
      due_ms = delay_ms > 0 and now_ceil_ms + delay_ms or now_ms
    else
      due_ms = math.max(tonumber(due), now_ms)
    end
    result[i] = due_ms
    payloads[#payloads + 1] = key
    payloads[#payloads + 1] = payload
    budgets[#budgets + 1] = id
    budgets[#budgets + 1] = ARGV[base + 3]
    if ARGV[base + 4] ~= '' then
      extras[#extras + 1] = id
      extras[#extras + 1] = ARGV[base + 4]
    end
    if due_ms <= now_ms then
      at_once[#at_once + 1] = id
    else
      later[#later + 1] = score(due_ms)
      later[#later + 1] = id
      if not earliest or due_ms < earliest then earliest = due_ms end
    end
  end
end
if #budgets == 0 then return result end

redis.call('MSET', unpack(payloads))
redis.call('HSET', counts, unpack(budgets))
if #extras > 0 then redis.call('HSET', headers, unpack(extras)) end
if #later > 0 then redis.call('ZADD', pending, unpack(later)) end
if #at_once > 0 then redis.call('LPUSH', ready, unpack(at_once)) end
redis.call('HINCRBY', stats, 'sent', #budgets / 2)
-- A hint, which may fail or be lost: hosts poll as well.
if #at_once > 0 or (earliest and (not head[2] or earliest < score_to_ms(head[2]))) then
  redis.pcall('PUBLISH', channel, '')
end
return result
