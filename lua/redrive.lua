#!lua flags=allow-oom
-- redrive: put dead letters back into their queue as new messages, due at once.
-- dead letter -> ready, under a new id
--
-- KEYS[1] {dp:<queue>}:dead       zset  id -> time of death, unix seconds
-- KEYS[2] {dp:<queue>}:ready      list  ids, LPUSH in, RPOP out
-- KEYS[3] {dp:<queue>}:retry:cnt  hash  id -> retries left
-- KEYS[4] {dp:<queue>}:attempts   hash  id -> "failed:released:left"
-- KEYS[5] {dp:<queue>}:headers    hash  id -> JSON
-- KEYS[6] {dp:<queue>}:history    hash  id -> failed attempts; the new one starts with its origin
-- KEYS[7] {dp:<queue>}:stats      hash  totals
-- KEYS[6+2i], KEYS[7+2i] {dp:<queue>}:msg:<id> string  the payload under the old and the new id
-- ARGV[1] channel that wakes sleeping hosts
-- ARGV[2] retries of the new messages, or "" for the budget that the dead letter had
-- ARGV[3] retries where that budget is not known (dead-lettered by a delayqueue consumer)
-- ARGV[4] those that were redriven so often already stay dead letters; or "" for no such number
-- ARGV[5..] two for each message: old id, new id; at most 100 messages
--
-- Returns for each message 1 redriven, 0 not a dead letter (nothing is changed), 2 its payload is
-- missing (it stays a dead letter), -1 - n if it stays one because it was redriven n times.
-- Crash safety: one script. A repeat answers 0: the old id is gone, whatever became of the reply.
-- include: clock
-- include: redriven
local dead, ready, counts, attempts, headers, history, stats =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local n, max = (#ARGV - 4) / 2, tonumber(ARGV[4])
local olds = {}
for i = 1, n do olds[i] = ARGV[3 + 2 * i] end
local deaths = redis.call('ZMSCORE', dead, unpack(olds))
local tries = redis.call('HMGET', attempts, unpack(olds))
local extra = redis.call('HMGET', headers, unpack(olds))
local past = redis.call('HMGET', history, unpack(olds))
redis.call('LLEN', ready)
for _, key in ipairs({counts, stats}) do redis.call('HLEN', key) end

local result, seen, gone = {}, {}, {}
local new_ids, budgets, extras, lines, renames = {}, {}, {}, {}, {}
for i, old in ipairs(olds) do
  local new, from, to = ARGV[4 + 2 * i], KEYS[6 + 2 * i], KEYS[7 + 2 * i]
  local redrives = redrives_of(past[i])
  if seen[old] or not deaths[i] then
    result[i] = 0
  elseif redis.call('EXISTS', from) == 0 then
    result[i] = 2
  elseif max and redrives >= max then
    result[i] = -1 - redrives
  else
    result[i] = 1
    gone[#gone + 1] = old
    new_ids[#new_ids + 1] = new
    renames[#renames + 1] = {from, to}
    budgets[#budgets + 1] = new
    budgets[#budgets + 1] = budget_of(tries[i], ARGV[2], ARGV[3])
    lines[#lines + 1] = new
    lines[#lines + 1] = origin(old, now_ms, redrives)
    local own = headers_of(extra[i])
    if own then
      extras[#extras + 1] = new
      extras[#extras + 1] = own
    end
  end
  seen[old] = true
end
if #gone == 0 then return result end

for _, pair in ipairs(renames) do
  redis.call('RENAME', pair[1], pair[2])
  -- What an earlier version dead-lettered may still have the expiry that a delayqueue producer set.
  if redis.call('PERSIST', pair[2]) == 1 then redis.pcall('HINCRBY', stats, 'sent', 1) end
end
redis.call('HSET', counts, unpack(budgets))
redis.call('HSET', history, unpack(lines))
if #extras > 0 then redis.call('HSET', headers, unpack(extras)) end
redis.call('LPUSH', ready, unpack(new_ids))
redis.call('ZREM', dead, unpack(gone))
for _, key in ipairs({attempts, headers, history}) do redis.call('HDEL', key, unpack(gone)) end
redis.pcall('HINCRBY', stats, 'redriven', #gone)
-- A hint, which may fail or be lost: hosts poll as well.
redis.pcall('PUBLISH', ARGV[1], '')
return result
