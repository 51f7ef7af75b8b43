-- reserve: takes what is first in line into unack. After `clock`; shared by `ready_to_unack` and
-- `limited_to_unack`.
--
-- KEYS[1] and KEYS[2] are ready and retry in the order of the caller; KEYS[3] to KEYS[7] are unack,
-- retry:cnt, attempts, due and headers. ARGV[2] is the lease in ms, ARGV[3] the retries of a message
-- that has none on record.
--
-- These loops see each message. So they count by themselves: `#` searches, and `ipairs` calls a function.
local unack, counts, attempts, due, headers = KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]

-- Up to `wanted` ids from the two lists, oldest first. Reads only. Returns those that are not in
-- unack, each once; how many were looked at in each list; the size of unack.
local function in_line(wanted)
  local ids, taken, n = {}, {0, 0}, 0
  for k = 1, 2 do
    if n < wanted then
      local tail = redis.call('LRANGE', KEYS[k], n - wanted, -1)
      taken[k] = #tail
      for i = taken[k], 1, -1 do
        n = n + 1
        ids[n] = tail[i]
      end
    end
  end
  if n == 0 then return ids, taken, 0 end
  local held = redis.call('ZCARD', unack)
  local leased = held > 0 and redis.call('ZMSCORE', unack, unpack(ids)) or {}
  local once, seen, number = {}, {}, 0
  for i = 1, n do
    local id = ids[i]
    if not leased[i] and not seen[id] then
      number = number + 1
      once[number] = id
    end
    seen[id] = true
  end
  return once, taken, held
end

-- Whether the time by which it had to begin is over.
local function is_expired(text)
  if not text or not string.find(text, '"dqhost-expires-at"', 1, true) then return false end
  for at in string.gmatch(text, '%["dqhost%-expires%-at","(%d+)"%]') do
    if #at <= 15 then return tonumber(at) <= now_ms end
  end
  return false
end

local function take_out(taken)
  for k = 1, 2 do
    if taken[k] > 0 then redis.call('LTRIM', KEYS[k], 0, -taken[k] - 1) end
  end
end

-- Puts what `in_line` has found into unack and takes all that it has looked at out of the lists.
-- fixed_keys, fixed_args: how many KEYS and ARGV come before those of payloads. texts: the headers of the
-- messages, if they are known. Returns what `ready_to_unack` answers.
local function to_unack(ids, taken, held, fixed_keys, fixed_args, texts)
  if #ids == 0 then
    take_out(taken)
    return {taken[1] + taken[2]}
  end
  local function fields(key)
    return redis.call('EXISTS', key) == 1 and redis.call('HMGET', key, unpack(ids)) or {}
  end
  local left, tries, due_at, extra = fields(counts), fields(attempts), fields(due), texts or fields(headers)

  local lease_end = score(now_ceil_ms + tonumber(ARGV[2]))
  local leases, n, flags, had_due = {}, 0, {}, false
  -- Redis keeps a sorted set of up to 128 short members as a list, which it searches from the
  -- start: 5 us a message here, and more in `ack`. A member of over 64 bytes makes it a tree; it
  -- comes first, since Redis chooses by the first, and goes again below.
  local long = string.rep('-', 65)
  local is_list = held <= 128 and held + #ids > 16 and not redis.call('ZSCORE', unack, long)
  if is_list then leases, n = {lease_end, long}, 2 end
  for i = 1, #ids do
    local id, flag = ids[i], 0
    leases[n + 1], leases[n + 2] = lease_end, id
    n = n + 2
    if id == long then is_list = false end
    if not left[i] then
      flag = 1
      left[i] = not tries[i] and ARGV[3]
    end
    if extra[i] and is_expired(extra[i]) then flag = flag + 2 end
    if flag > 0 then
      flags[#flags + 1] = i
      flags[#flags + 1] = flag
    end
    had_due = had_due or due_at[i]
  end
  redis.call('ZADD', unack, unpack(leases))
  if is_list then redis.call('ZREM', unack, long) end
  take_out(taken)
  if had_due then redis.call('HDEL', due, unpack(ids)) end
  -- What was read is answered as it is. An element for each field of a message would cost more than the rest.
  local result = {taken[1] + taken[2], ids, left, tries, due_at, extra, flags}
  if #KEYS > fixed_keys then
    local reserved = {}
    for i = 1, #ids do reserved[ids[i]] = true end
    for k = 1, #KEYS - fixed_keys do
      -- What is no string is found missing by who reads it.
      local payload = reserved[ARGV[fixed_args + k]] and redis.pcall('GET', KEYS[fixed_keys + k])
      result[7 + k] = type(payload) == 'string' and payload
    end
  end
  return result
end
