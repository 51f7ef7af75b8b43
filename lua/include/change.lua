-- change: a message is sent, or changes what is there under its id. After `clock`; shared by `send_or_change`
-- and `after_run`.
-- (nowhere) -> ready when already due, else -> pending
-- pending, ready, retry, garbage, dead letter -> pending, ready or retry
-- unack: stays, and the repeat waits in `repeats` until the run has ended
--
-- KEYS[1] to KEYS[14] are pending, ready, retry, unack, retry:cnt, attempts, due, headers, history, stats, dead,
-- garbage, moving and repeats.
local pending, ready, retry, unack, counts, attempts, due, headers, history, stats, dead, garbage, moving, repeats =
  unpack(KEYS, 1, 14)

-- One field of a hash. Hosts need no right for HGET.
local function field(key, id) return redis.call('HMGET', key, id)[1] end

-- After this nothing may fail for a key of the wrong type.
local function check_types()
  for _, key in ipairs({pending, unack, dead, moving}) do redis.call('ZCARD', key) end
  for _, key in ipairs({ready, retry}) do redis.call('LLEN', key) end
  for _, key in ipairs({counts, attempts, due, headers, history, stats, repeats}) do
    redis.call('HLEN', key)
  end
  redis.call('SCARD', garbage)
end

-- When a message that waits was sent first, unix ms, as its headers say; or nil.
local function first_sent(text)
  local at = string.match(text or '', '%["dqhost%-first%-sent%-at","(%d+)"%]')
  return at and #at <= 15 and math.min(tonumber(at), now_ms) or nil
end

-- Headers that say it. What is no list stays as it is.
local function with_first(text, first_ms)
  local pair = string.format('["dqhost-first-sent-at","%.0f"]', first_ms)
  text = string.gsub(text or '', ',?%["dqhost%-first%-sent%-at","[^"\\]*"%]', '')
  text = string.gsub(text, '^%[,', '[')
  if not text or text == '' or text == '[]' then return '[' .. pair .. ']' end
  return (string.gsub(text, '%]%s*$', function() return ',' .. pair .. ']' end))
end

-- Those of a dead letter that waits anew: neither the time by which it had to begin counts, nor when it was
-- sent first.
local function without_times(text)
  text = string.gsub(text or '', ',?%["dqhost%-expires%-at","[^"\\]*"%]', '')
  text = string.gsub(text, ',?%["dqhost%-first%-sent%-at","[^"\\]*"%]', '')
  return (string.gsub(text, '^%[,', '['))
end

-- A due time that is at most `wait` ms after the first send, and not in the past.
local function bounded(due_ms, first_ms, wait)
  if wait ~= '' then due_ms = math.min(due_ms, first_ms + tonumber(wait)) end
  return math.max(due_ms, now_ms)
end

-- A repeat as `repeats` keeps it: mode, due ms, longest wait, retries, the number of its first send, length of
-- the headers, the headers, the payload. The number is the time in us, and above that of the message's run.
local function kept_repeat(id)
  local text = field(repeats, id)
  if not text then return false end
  local mode, due_ms, wait, retries, number, size, at =
    string.match(text, '^(%l+) (%d+) (%d*) (%d+) (%d+) (%d+) ()')
  if not at then return false end
  return {
    id = id, mode = mode, due_ms = tonumber(due_ms), wait = wait, retries = retries,
    number = tonumber(number), first = math.floor(number / 1000), headers = string.sub(text, at, at + size - 1),
    payload = string.sub(text, at + size),
  }
end

-- A count of released deliveries that none before has reached: the time in us, or more if the clock was set back.
local function next_number(tries)
  local failed, released = string.match(tries or '0:0', '^(%d+):(%d+)')
  return math.max(time[1] * 1000000 + time[2], (failed or 0) + (released or 0) + 1)
end

-- The message runs. The repeat is kept, as one with those that came before it in this run.
local function keep_for_later(new)
  local kept = kept_repeat(new.id)
  local number = kept and kept.number or next_number(field(attempts, new.id))
  local of, mode = new, new.mode
  if kept and mode == 'extend' then of, mode = kept, kept.mode end
  local due_ms = bounded(new.due_ms, math.min(math.floor(number / 1000), now_ms), new.wait)
  redis.call('HSET', repeats, new.id, string.format('%s %.0f %s %s %.0f %d ', mode, due_ms, new.wait,
    of.retries, number, #of.headers) .. of.headers .. of.payload)
  return due_ms
end

-- Where an id waits or is dead: a key, or false if it is nowhere.
local function place_of_waiting(id, key)
  if redis.call('ZSCORE', pending, id) then return pending end
  if redis.call('ZSCORE', dead, id) then return dead end
  if redis.call('SISMEMBER', garbage, id) == 1 then return garbage end
  if redis.call('EXISTS', key) == 0 and not field(counts, id) then return false end
  for _, list in ipairs({ready, retry}) do
    if redis.call('LPOS', list, id, 'RANK', -1) then return list end
  end
  return false
end

-- Puts it where it is to wait, then takes it from where it was. Returns what wakes hosts: its id if it is
-- ready, '' if it is due sooner than all others, or false.
local function wait_until(due_ms, id, from, again)
  local to, wakes = again and retry or ready, false
  if due_ms > now_ms then
    local head = redis.call('ZRANGE', pending, 0, 0, 'WITHSCORES')
    wakes = (not head[2] or due_ms < score_to_ms(head[2])) and ''
    redis.call('ZADD', pending, score(due_ms), id)
    redis.call('HDEL', due, id)
    to = pending
  elseif from ~= to then
    redis.call('LPUSH', to, id)
    if from == pending then redis.call('HSET', due, id, string.format('%.0f', now_ms)) end
    wakes = id
  end
  if from == to then return wakes end
  if from == ready or from == retry then redis.call('LREM', from, -1, id) end
  if from == pending or from == dead then redis.call('ZREM', from, id) end
  if from == garbage then redis.call('SREM', garbage, id) end
  return wakes
end

-- What is on record of a message that begins anew. Ids come again, and so would tokens without a new number.
local function begin_anew(new, tries)
  redis.call('HSET', counts, new.id, new.retries)
  redis.call('HSET', attempts, new.id, string.format('0:%.0f', next_number(tries)))
  redis.call('HDEL', history, new.id)
end

-- Sends a message or changes what is there. new: {id=, mode= 'replace' or 'extend', payload=, due_ms=,
-- retries=, headers=, wait= ms or '', first= ms or nil}; key: that of its payload; channel: what wakes
-- sleeping hosts. Returns what `send_or_change` does.
local function accept(new, key, channel)
  local id = new.id
  if redis.call('ZSCORE', moving, id) then return {0, 0} end
  if redis.call('ZSCORE', unack, id) then return {4, keep_for_later(new)} end
  local from = place_of_waiting(id, key)
  local waits = from == pending or from == ready or from == retry
  local tries, text = field(attempts, id), field(headers, id)
  local known = waits and first_sent(text)
  local first = math.min(new.first or known or now_ms, now_ms)
  local due_ms = bounded(new.due_ms, first, new.wait)

  -- A delayqueue producer may have set an expiry. Who takes it off is the first of us to see the message.
  if from and redis.call('PERSIST', key) == 1 then redis.pcall('HINCRBY', stats, 'sent', 1) end
  local replaces = not from or new.mode == 'replace'
  if replaces or redis.call('EXISTS', key) == 0 then redis.call('MSET', key, new.payload) end
  if replaces then
    text = with_first(new.headers, first)
  elseif not waits then
    text = with_first(without_times(text), first)
  elseif not known or new.first then
    text = with_first(text, first)
  end
  redis.call('HSET', headers, id, text)
  local again = false
  if replaces or not waits then
    begin_anew(new, tries)
  else
    again = tries and string.sub(tries, 1, 2) ~= '0:'
  end
  local wakes = wait_until(due_ms, id, from, again)
  if not waits then redis.pcall('HINCRBY', stats, from and 'redriven' or 'sent', 1) end
  -- A hint, which may fail or be lost: hosts poll as well.
  if wakes then redis.pcall('PUBLISH', channel, wakes) end
  return {not from and 1 or new.mode == 'replace' and 2 or 3, due_ms}
end

-- Whether the message was sent anew after this repeat came, since the run had ended and nobody had seen to the
-- repeat: then that is what its sender wants. What comes back from a run of ours has a count of attempts.
local function was_sent_since(kept, key)
  local from = place_of_waiting(kept.id, key)
  if from ~= pending and from ~= ready then return false end
  local tries = field(attempts, kept.id)
  local released = string.match(tries or '', '^0:(%d+)')
  return not tries or released and tonumber(released) > kept.number
end

-- Takes a repeat out of `repeats` and does what it wants, if its message does not run any more.
local function after_run(id, key, channel)
  if redis.call('ZSCORE', unack, id) or redis.call('ZSCORE', moving, id) then return false end
  local kept = kept_repeat(id)
  if kept and not was_sent_since(kept, key) then accept(kept, key, channel) end
  redis.call('HDEL', repeats, id)
  return kept and true
end
