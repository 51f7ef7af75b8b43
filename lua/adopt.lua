#!lua flags=allow-oom
-- adopt: promote due messages of delayqueue producers, whose due times are cut to whole seconds.
-- What was asked for later within that second waits until then. Their payloads expire no more.
-- pending -> ready when never delivered before, else -> retry; or pending, with a later due time
--
-- KEYS[1] {dp:<queue>}:pending   zset  id -> due time, unix seconds
-- KEYS[2] {dp:<queue>}:ready     list  ids, LPUSH in, RPOP out
-- KEYS[3] {dp:<queue>}:retry     list  ids, LPUSH in, RPOP out
-- KEYS[4] {dp:<queue>}:attempts  hash  id -> "failed:released"; absent before the first failure
-- KEYS[5] {dp:<queue>}:due       hash  id -> unix ms at which a waiting message became due
-- KEYS[6] {dp:<queue>}:stats     hash  totals
-- KEYS[6+i] {dp:<queue>}:msg:<id> string  the payload of message i
-- ARGV[i] id, at most 1,000, as `pending_to_ready` named it
--
-- Returns {promoted, us until the next one is due or -1}. An id that is not pending any more, or not
-- due any more, is passed over.
-- Crash safety: one script; the exact due time is kept in the step that takes the expiry off. Until
-- then the message stays pending, and `pending_to_ready` names it again.
-- include: clock
-- include: foreign
local pending, ready, retry, due, stats = KEYS[1], KEYS[2], KEYS[3], KEYS[5], KEYS[6]
local scores = redis.call('ZMSCORE', pending, unpack(ARGV))
local tries = redis.call('HMGET', KEYS[4], unpack(ARGV))
redis.call('LLEN', ready)
redis.call('LLEN', retry)
redis.call('HLEN', due)
redis.call('HLEN', stats)

local later, dues, fresh, again, gone, expiring = {}, {}, {}, {}, {}, {}
for i, id in ipairs(ARGV) do
  local at_ms = scores[i] and score_to_ms(scores[i])
  if at_ms and at_ms <= now_ms then
    local expiry_ms = expiry_of(KEYS[6 + i])
    if expiry_ms >= 0 then
      expiring[#expiring + 1] = KEYS[6 + i]
      if expiry_ms > 0 and at_ms % 1000 == 0 then at_ms = exact_due(at_ms, expiry_ms) end
    end
    if at_ms > now_ms then
      later[#later + 1] = score(at_ms)
      later[#later + 1] = id
    else
      local list = tries[i] and string.sub(tries[i], 1, 2) ~= '0:' and again or fresh
      list[#list + 1] = id
      dues[#dues + 1] = id
      dues[#dues + 1] = string.format('%.0f', at_ms)
      gone[#gone + 1] = id
    end
  end
end

if #later > 0 then redis.call('ZADD', pending, unpack(later)) end
if #fresh > 0 then redis.call('LPUSH', ready, unpack(fresh)) end
if #again > 0 then redis.call('LPUSH', retry, unpack(again)) end
if #gone > 0 then
  redis.call('HSET', due, unpack(dues))
  redis.call('ZREM', pending, unpack(gone))
end
persist_all(expiring, stats)
local head = redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')
return {#gone, us_until(head[2] and score_to_ms(head[2]))}
