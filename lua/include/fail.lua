-- fail: what follows a delivery that did not succeed, whatever the reason.
-- unack -> pending (a delay), retry (at once), or garbage (no retries left, or final)
--
-- keys: {unack=, counts=, attempts=, history=, pending=, retry=, garbage=}.
-- Without an entry that has a delay, pending may be absent.
-- failed: at most 100 of {id=, delay_ms= or nil, final=true or nil, record=}.
-- A record is one line of JSON.
--
-- Reads and checks everything, then writes; the id is put where it goes before it leaves unack.

-- The record added to a message's history. The first line, which says since when it fails, and the
-- latest are kept: at most 20, and at most 6 KiB unless the last alone is longer. A history is read and
-- written whole, so its size is what a script costs.
local function appended(lines, record)
  if not lines or lines == '' then return record end
  local breaks, at = 0, 0
  repeat
    at = string.find(lines, '\n', at + 1, true)
    if at then breaks = breaks + 1 end
  until not at
  local second = (string.find(lines, '\n', 1, true) or #lines + 1) + 1
  local first = string.sub(lines, 1, second - 2)
  if #first + 1 + #record > 6144 then return record end
  local from, over = second, #lines + 1 + #record - 6144
  while from <= #lines and (breaks >= 19 or from - second < over) do
    local stop = string.find(lines, '\n', from, true)
    from = stop and stop + 1 or #lines + 1
    breaks = breaks - 1
  end
  if from > #lines then return first .. '\n' .. record end
  return first .. '\n' .. string.sub(lines, from) .. '\n' .. record
end

local function fail(keys, failed)
  if #failed == 0 then return end
  local ids = {}
  for i, entry in ipairs(failed) do ids[i] = entry.id end
  local left = redis.call('HMGET', keys.counts, unpack(ids))
  local tries = redis.call('HMGET', keys.attempts, unpack(ids))
  local lines = redis.call('HMGET', keys.history, unpack(ids))
  redis.call('LLEN', keys.retry)
  redis.call('SCARD', keys.garbage)
  if keys.pending then redis.call('ZCARD', keys.pending) end

  local later, at_once, dead_lettered, counts, attempts, history = {}, {}, {}, {}, {}, {}
  for i, entry in ipairs(failed) do
    local remaining = tonumber(left[i] or '0') or 0
    local done, released = string.match(tries[i] or '0:0', '^(%d+):(%d+)')
    attempts[#attempts + 1] = entry.id
    attempts[#attempts + 1] = string.format('%d:%d', (done or 0) + 1, released or 0)
    history[#history + 1] = entry.id
    history[#history + 1] = appended(lines[i], entry.record)
    if entry.final or remaining <= 0 then
      -- Retries that a delayqueue producer took away: `collect_garbage` knows by the third number that
      -- the last attempt is on record.
      if not left[i] then attempts[#attempts] = attempts[#attempts] .. ':0' end
      dead_lettered[#dead_lettered + 1] = entry.id
    else
      counts[#counts + 1] = entry.id
      counts[#counts + 1] = string.format('%d', remaining - 1)
      if entry.delay_ms then
        later[#later + 1] = score(now_ceil_ms + entry.delay_ms)
        later[#later + 1] = entry.id
      else
        at_once[#at_once + 1] = entry.id
      end
    end
  end

  if #dead_lettered > 0 then redis.call('SADD', keys.garbage, unpack(dead_lettered)) end
  if #later > 0 then redis.call('ZADD', keys.pending, unpack(later)) end
  if #at_once > 0 then redis.call('LPUSH', keys.retry, unpack(at_once)) end
  if #counts > 0 then redis.call('HSET', keys.counts, unpack(counts)) end
  redis.call('HSET', keys.attempts, unpack(attempts))
  redis.call('HSET', keys.history, unpack(history))
  redis.call('ZREM', keys.unack, unpack(ids))
end
