-- acked: handled messages are removed with all that is kept of them. After `held`.
-- It has two halves, so that a script which does more checks everything before it writes anything.
-- unack -> (nowhere)
--
-- KEYS[1] to KEYS[7] are unack, counts, attempts, headers, history, stats and repeats; then come the
-- payloads' keys. Not in a table, which a plain ack would have to make each time.
local unack, counts, attempts, headers, history, stats =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]

-- The first half, which only reads. ids, lefts, tries: the claims, at most 1,000. Returns for each
-- message 1, 2 when a repeat of it waits for this, or 0 when its lease is lost; the ids of those that are
-- done, and their payloads' keys.
local function handled(ids, lefts, tries)
  local ours = held(unack, counts, attempts, ids, lefts, tries)
  redis.call('HLEN', headers)
  redis.call('HLEN', history)
  redis.call('HLEN', stats)
  local result, done, payloads, n = answers(KEYS[7], ids, ours), {}, {}, 0
  for i = 1, #ids do
    if ours[i] then
      n = n + 1
      done[n], payloads[n] = ids[i], KEYS[7 + i]
    end
  end
  return result, done, payloads
end

-- The second half, which writes.
local function remove(done, payloads)
  if #done == 0 then return end
  redis.call('ZREM', unack, unpack(done))
  redis.call('DEL', unpack(payloads))
  redis.call('HDEL', counts, unpack(done))
  for _, key in ipairs({attempts, headers, history}) do
    if redis.call('EXISTS', key) == 1 then redis.call('HDEL', key, unpack(done)) end
  end
  redis.pcall('HINCRBY', stats, 'acked', #done)
end
