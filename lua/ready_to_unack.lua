#!lua flags=allow-oom
-- ready_to_unack: reserve waiting messages under a lease. The same for ready and for retry: the
-- caller says which is looked at first.
-- ready, retry -> unack
--
-- KEYS[1] {dp:<queue>}:ready or :retry  list    the one to look at first, oldest at the right
-- KEYS[2] {dp:<queue>}:retry or :ready  list    the other one
-- KEYS[3] {dp:<queue>}:unack      zset    id -> end of the lease, unix seconds
-- KEYS[4] {dp:<queue>}:retry:cnt  hash    id -> retries left; read only
-- KEYS[5] {dp:<queue>}:attempts   hash    id -> "failed:released"; read only
-- KEYS[6] {dp:<queue>}:due        hash    id -> unix ms at which it became due
-- KEYS[7] {dp:<queue>}:headers    hash    id -> JSON
-- KEYS[8] {dp:<queue>}:paused     string  1 while the queue is paused; read only
-- KEYS[8+i] {dp:<queue>}:msg:<id> string  the payload of a message that may be among them; read only
-- ARGV[1] the most to reserve, 1 to 1,000
-- ARGV[2] lease, ms
-- ARGV[3] retries of a message that has none on record and was never tried: the caller puts them on
--         record once it has seen the payload
-- ARGV[3+i] the id of that message
--
-- Returns the number of ids that left their lists. Then six for each message, oldest first: id, retries
-- left, "failed:released", due unix ms, headers; "" where there is none; 1 when it had no retries on
-- record, else 0. The second and third together are the token. An id that is in unack already, or twice
-- in line, is taken out of its list and given out once, so that no two deliveries have one token. Then
-- the payload of each KEYS[8+i] whose message was reserved, nil for the others: who guessed right need
-- not ask for it. Only a 0 while the queue is paused or nothing waits.
-- Crash safety: the id is in unack before it leaves its list, in one script. A host that dies
-- here or later lets the lease end, and `unack_to_retry` delivers the message again.
-- include: clock
local unack, counts, attempts, due, headers = KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
if redis.call('EXISTS', KEYS[8]) == 1 then return {0} end
local wanted = tonumber(ARGV[1])
local ids, taken = {}, {0, 0}
for k = 1, 2 do
  if #ids < wanted then
    local tail = redis.call('LRANGE', KEYS[k], #ids - wanted, -1)
    for i = #tail, 1, -1 do ids[#ids + 1] = tail[i] end
    taken[k] = #tail
  end
end
if #ids == 0 then return {0} end

local held = redis.call('ZCARD', unack)
local leased = held > 0 and redis.call('ZMSCORE', unack, unpack(ids)) or {}
local once, seen = {}, {}
for i, id in ipairs(ids) do
  if not leased[i] and not seen[id] then once[#once + 1] = id end
  seen[id] = true
end
ids = once
local function take_out()
  for k = 1, 2 do
    if taken[k] > 0 then redis.call('LTRIM', KEYS[k], 0, -taken[k] - 1) end
  end
end
if #ids == 0 then
  take_out()
  return {taken[1] + taken[2]}
end
local function fields(key)
  return redis.call('EXISTS', key) == 1 and redis.call('HMGET', key, unpack(ids)) or {}
end
local left, tries, due_at, extra = fields(counts), fields(attempts), fields(due), fields(headers)

local lease_end = score(now_ceil_ms + tonumber(ARGV[2]))
local leases, result, had_due = {}, {taken[1] + taken[2]}, false
-- Redis keeps a sorted set of up to 128 short members as a list, which it searches from the start:
-- 5 us a message here, and more in `ack`. A member of over 64 bytes makes it a tree; it comes first,
-- since Redis chooses by the first, and goes again below.
local long = string.rep('-', 65)
local is_list = held <= 128 and held + #ids > 16 and not redis.call('ZSCORE', unack, long)
if is_list then leases = {lease_end, long} end
for i, id in ipairs(ids) do
  local is_on_record = left[i]
  leases[#leases + 1] = lease_end
  leases[#leases + 1] = id
  if id == long then is_list = false end
  if not left[i] and not tries[i] then left[i] = ARGV[3] end
  local base = (i - 1) * 6 + 1
  result[base + 1] = id
  result[base + 2] = left[i] or ''
  result[base + 3] = tries[i] or ''
  result[base + 4] = due_at[i] or ''
  result[base + 5] = extra[i] or ''
  result[base + 6] = is_on_record and 0 or 1
  had_due = had_due or due_at[i]
end
redis.call('ZADD', unack, unpack(leases))
if is_list then redis.call('ZREM', unack, long) end
take_out()
if had_due then redis.call('HDEL', due, unpack(ids)) end
if #KEYS > 8 then
  local reserved = {}
  for _, id in ipairs(ids) do reserved[id] = true end
  for k = 9, #KEYS do
    -- What is no string is found missing by who reads it.
    local payload = reserved[ARGV[k - 5]] and redis.pcall('GET', KEYS[k])
    result[#ids * 6 + k - 7] = type(payload) == 'string' and payload
  end
end
return result
