-- enqueue: new messages go into a queue, in two halves, so that a script which does more checks
-- everything before it writes anything.
-- (nowhere) -> ready when already due, else -> pending
--
-- keys: {pending=, ready=, counts=, headers=, stats=, dedup=}. The payloads' keys are KEYS from
-- first_key on, at most 1,000; of each message six stand in ARGV from first_arg on: id, payload, due
-- ("+N": N ms from now, else unix ms), retries, headers as JSON or "", and for how many ms after it
-- was due its id counts as there already, or 0.

-- The first half, which only reads. seen: keys of payloads that count as there already; those of
-- these messages are added. Returns what the second half writes; in its `result` is for each message
-- its due time in unix ms, or 0 when the id was there already.
local function incoming(keys, first_key, first_arg, number, seen)
  local head = redis.call('ZRANGE', keys.pending, 0, 0, 'WITHSCORES')
  redis.call('LLEN', keys.ready)
  redis.call('HLEN', keys.counts)
  redis.call('HLEN', keys.headers)
  redis.call('HLEN', keys.stats)

  local result = {}
  local payloads, budgets, later, at_once, extras = {}, {}, {}, {}, {}
  local kept, forgotten = {}, {}
  local earliest = false
  for i = 1, number do
    local base = first_arg + (i - 1) * 6
    local id, payload, due = ARGV[base], ARGV[base + 1], ARGV[base + 2]
    local key = KEYS[first_key + i - 1]
    local window_ms = tonumber(ARGV[base + 5])
    local is_there = seen[key] or redis.call('EXISTS', key) == 1
    if not is_there and window_ms > 0 then
      local kept_until = redis.call('ZSCORE', keys.dedup, id)
      is_there = kept_until and score_to_ms(kept_until) > now_ms
    end
    if is_there then
      result[i] = 0
    else
      seen[key] = true
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
      if window_ms > 0 then
        kept[#kept + 1] = score(due_ms + window_ms)
        kept[#kept + 1] = id
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
  if #kept > 0 then
    -- Two for each that comes, so that those which are over become fewer.
    forgotten = redis.call('ZRANGE', keys.dedup, '-inf', score(now_ms), 'BYSCORE', 'LIMIT', 0, #kept)
  end
  return {
    keys = keys, result = result, payloads = payloads, budgets = budgets, later = later,
    at_once = at_once, extras = extras, kept = kept, forgotten = forgotten,
    is_sooner = #at_once > 0
      or (earliest and (not head[2] or earliest < score_to_ms(head[2]))),
  }
end

-- The second half, which only writes. channel: what wakes sleeping hosts.
local function enqueue(new, channel)
  local keys = new.keys
  if #new.budgets == 0 then return end
  redis.call('MSET', unpack(new.payloads))
  -- One whose payload someone deleted is sent again, and there already.
  local added = redis.call('HSET', keys.counts, unpack(new.budgets))
  if #new.extras > 0 then redis.call('HSET', keys.headers, unpack(new.extras)) end
  if #new.later > 0 then redis.call('ZADD', keys.pending, unpack(new.later)) end
  if #new.at_once > 0 then redis.call('LPUSH', keys.ready, unpack(new.at_once)) end
  if #new.forgotten > 0 then redis.call('ZREM', keys.dedup, unpack(new.forgotten)) end
  if #new.kept > 0 then redis.call('ZADD', keys.dedup, unpack(new.kept)) end
  redis.pcall('HINCRBY', keys.stats, 'sent', added)
  -- A hint, which may fail or be lost: hosts poll as well. It names a message that is ready.
  if new.is_sooner then redis.pcall('PUBLISH', channel, new.at_once[1] or '') end
end
