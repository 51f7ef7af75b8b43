-- enqueue: new messages go into a queue. After `clock` and `expiry`.
-- It has two halves, so that a script which does more checks everything before it writes anything.
-- (nowhere) -> ready when already due, else -> pending
--
-- keys: {pending=, ready=, counts=, headers=, stats=, dedup=, attempts=, due=, history=}.
-- A function place_of(id) is among them where the script may look into the other places.
-- The payloads' keys are KEYS from first_key on, at most 1,000.
-- Each message has seven ARGV from first_arg on. `send` says what they are.

-- What is on record of these ids. Returns for each true when it may be in line although its payload
-- is gone, and the fields of the hashes beside `counts`, by their names in `keys`.
local function on_record(keys, ids)
  local known, fields = redis.call('HMGET', keys.counts, unpack(ids)), {}
  if redis.call('EXISTS', keys.attempts, keys.due, keys.headers, keys.history) > 0 then
    for _, name in ipairs({'attempts', 'due', 'headers', 'history'}) do
      fields[name] = redis.call('HMGET', keys[name], unpack(ids))
    end
    for i = 1, #ids do known[i] = known[i] or fields.attempts[i] or fields.due[i] end
  end
  return known, fields
end

-- The first half, which only reads. seen: keys of payloads that count as there already; those of
-- these messages are added. Returns what the second half writes. Its `result` has for each message
-- what `send` returns.
local function incoming(keys, first_key, first_arg, number, seen)
  local head = redis.call('ZRANGE', keys.pending, 0, 0, 'WITHSCORES')
  redis.call('LLEN', keys.ready)
  redis.call('HLEN', keys.stats)
  local ids = {}
  for i = 1, number do ids[i] = ARGV[first_arg + (i - 1) * 7] end
  local known, fields = on_record(keys, ids)

  local result = {}
  local payloads, budgets, later, at_once, extras = {}, {}, {}, {}, {}
  local kept, forgotten, stale, marks = {}, {}, {}, {}
  local earliest = false

  -- The message stays where it is and has its payload again.
  local function restore(i, key, place)
    seen[key] = true
    payloads[#payloads + 1] = key
    payloads[#payloads + 1] = ARGV[first_arg + (i - 1) * 7 + 1]
    local at = place == 'live' and redis.call('ZSCORE', keys.pending, ids[i])
    result[i] = place == 'kept' and 0 or at and score_to_ms(at) or now_ms
  end

  local function is_there_already(id, key, window_ms)
    if seen[key] or redis.call('EXISTS', key) == 1 then return true end
    local kept_until = window_ms > 0 and redis.call('ZSCORE', keys.dedup, id)
    return kept_until and score_to_ms(kept_until) > now_ms
  end

  for i = 1, number do
    local base = first_arg + (i - 1) * 7
    local id, payload, due = ids[i], ARGV[base + 1], ARGV[base + 2]
    local key = KEYS[first_key + i - 1]
    local window_ms, place = tonumber(ARGV[base + 5]), 'nowhere'
    if known[i] and not seen[key] and redis.call('EXISTS', key) == 0 then
      -- The third number is that of a dead letter.
      local is_dead = fields.attempts and string.find(fields.attempts[i] or '', '^%d+:%d+:%d')
      place = is_dead and 'kept' or ARGV[base + 6]
      if place == '' then place = keys.place_of and keys.place_of(id) or 'unknown' end
    end
    if place == 'unknown' then
      result[i] = -1
    elseif place ~= 'nowhere' then
      restore(i, key, place)
    elseif is_there_already(id, key, window_ms) then
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
      for name, values in pairs(fields) do
        -- The ack of a delayqueue consumer removes none of these.
        if values[i] then
          stale[name] = stale[name] or {}
          table.insert(stale[name], id)
        end
      end
      if ARGV[base + 4] ~= '' then
        extras[#extras + 1] = id
        extras[#extras + 1] = with_expiry(ARGV[base + 4])
      end
      if window_ms > 0 then
        kept[#kept + 1] = score(due_ms + window_ms)
        kept[#kept + 1] = id
        -- Such an id may come again while a host still has a delivery of it that was taken from it. A count of
        -- released deliveries that goes on from the clock, in microseconds, makes each token another one.
        marks[#marks + 1] = id
        marks[#marks + 1] = string.format('0:%.0f', time[1] * 1000000 + time[2])
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
    at_once = at_once, extras = extras, kept = kept, forgotten = forgotten, stale = stale,
    marks = marks,
    is_sooner = #at_once > 0
      or (earliest and (not head[2] or earliest < score_to_ms(head[2]))),
  }
end

-- The second half, which only writes. channel: what wakes sleeping hosts.
local function enqueue(new, channel)
  local keys = new.keys
  if #new.payloads == 0 then return end
  redis.call('MSET', unpack(new.payloads))
  if #new.budgets == 0 then return end
  for name, ids in pairs(new.stale) do redis.call('HDEL', keys[name], unpack(ids)) end
  redis.call('HSET', keys.counts, unpack(new.budgets))
  if #new.marks > 0 then redis.call('HSET', keys.attempts, unpack(new.marks)) end
  if #new.extras > 0 then redis.call('HSET', keys.headers, unpack(new.extras)) end
  if #new.later > 0 then redis.call('ZADD', keys.pending, unpack(new.later)) end
  if #new.at_once > 0 then redis.call('LPUSH', keys.ready, unpack(new.at_once)) end
  if #new.forgotten > 0 then redis.call('ZREM', keys.dedup, unpack(new.forgotten)) end
  if #new.kept > 0 then redis.call('ZADD', keys.dedup, unpack(new.kept)) end
  redis.pcall('HINCRBY', keys.stats, 'sent', #new.budgets / 2)
  -- A hint, which may fail or be lost: hosts poll as well. It names a message that is ready.
  if new.is_sooner then redis.pcall('PUBLISH', channel, new.at_once[1] or '') end
end
