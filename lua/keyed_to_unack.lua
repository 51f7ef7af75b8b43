#!lua flags=allow-oom
-- keyed_to_unack: reserve waiting messages under a lease, as many as the limits of each key let go. The key
-- of a message is the value of one of its headers. What is over the limit of its key is set aside.
-- ready, retry -> unack or pending; pending -> unack for what was set aside
--
-- KEYS[1] {dp:<queue>}:ready or :retry  list    the one to look at first, oldest at the right
-- KEYS[2] {dp:<queue>}:retry or :ready  list    the other one
-- KEYS[3] {dp:<queue>}:unack      zset    id -> end of the lease, unix seconds
-- KEYS[4] {dp:<queue>}:retry:cnt  hash    id -> retries left; read only
-- KEYS[5] {dp:<queue>}:attempts   hash    id -> "failed:released"; read only
-- KEYS[6] {dp:<queue>}:due        hash    id -> unix ms at which it became due
-- KEYS[7] {dp:<queue>}:headers    hash    id -> JSON
-- KEYS[8] {dp:<queue>}:paused     string  1 while the queue is paused; read only
-- KEYS[9] {dp:<queue>}:limits     zset    SHA-1 of a key -> when its next one comes by the rate (TAT), unix us;
--                                         `until` -> so long what is set aside counts as held back, unix us
-- KEYS[10] {dp:<queue>}:pending   zset    id -> due time, unix seconds
-- KEYS[11] {dp:<queue>}:limited   zset    "SHA-1:place:id" of what is set aside, by key and in order; score 0
-- KEYS[12] {dp:<queue>}:limited:at  hash  id -> "SHA-1:place:due ms" of the same; "" -> the last place
-- KEYS[13] {dp:<queue>}:limited:keys  zset  SHA-1 -> when to look at the key next, unix us
-- KEYS[14] {dp:<queue>}:limited:holders  hash  SHA-1 -> JSON list of the ids that occupy the key
-- KEYS[15] {dp:<queue>}:garbage   set     ids that become dead letters; read only
-- KEYS[15+i] {dp:<queue>}:msg:<id> string  the payload of a message that may be among them; read only
-- ARGV[1] to ARGV[7] as in `limited_to_unack`; ARGV[7] is at most 100 and counts for each key. 1 keeps the
--         order of a key: the key is occupied until the message is acked or dead, retries included.
-- ARGV[8] the name of the header; messages without it share one key
-- ARGV[8+i] the id of that message
--
-- Returns {us until the next key may go or there is more to look at, 0 when nothing is set aside, or -1 when
-- one in unack has to be settled first, what `ready_to_unack` answers}.
-- Crash safety: what is set aside is pending, due in a minute, so all that knows pending finds it. KEYS[11]
-- to KEYS[14] are hints that are checked before use: an entry counts only while its id is pending with
-- the same due time, and a holder only while it is in unack (or waits for its retry, with a maximum of
-- 1). If they are lost, messages come back after the minute.
-- include: clock
-- include: gcra
-- include: reserve
-- include: header_key
-- include: aside
if redis.call('EXISTS', KEYS[8]) == 1 then return {0, {0}} end
local limits, keys, holders = KEYS[9], KEYS[13], KEYS[14]
local wanted, count, per_us = tonumber(ARGV[1]), tonumber(ARGV[4]), tonumber(ARGV[5])
local burst, running_max = tonumber(ARGV[6]), tonumber(ARGV[7])
local now_us = time[1] * 1000000 + time[2]
-- A key that waits for a lease is looked at each time; one that has nothing aside, now and then.
local IDLE_US, KEYS_MAX = 1000000, 500
-- Ids in line that one call looks at: setting one aside takes several times as long as letting it go.
local LOOKS_MAX = 250
-- Never a whole second: those are due times that a delayqueue producer has cut.
local aside_ms = now_ceil_ms + 60000
if aside_ms % 1000 == 0 then aside_ms = aside_ms + 1 end
for _, key in ipairs({pending, line, keys}) do redis.call('ZCARD', key) end
for _, key in ipairs({at, holders, due, headers}) do redis.call('HLEN', key) end
redis.call('SCARD', KEYS[15])
local shown = redis.call('ZSCORE', limits, 'until')

local function field(hash, name)
  return redis.call('HMGET', hash, name)[1]
end

-- Whether a holder still has its key. An id may come again, with another key or for a time of its own: then it
-- waits like any other.
local function occupies(id, digest)
  if key_of(field(headers, id)) ~= digest then return false end
  if redis.call('ZSCORE', unack, id) then return true end
  if running_max ~= 1 or not field(counts, id) or redis.call('SISMEMBER', KEYS[15], id) == 1 then
    return false
  end
  local tries = field(KEYS[5], id)
  if tries and string.sub(tries, 1, 2) ~= '0:' then return true end
  local due_at, aside_at = redis.call('ZSCORE', pending, id), string.match(field(at, id) or '', ':(%d+)$')
  return not due_at or aside_at == string.format('%.0f', score_to_ms(due_at))
end

local groups = {}
local function group(digest)
  local g = groups[digest]
  if g then return g end
  g = {holders = {}, changed = false}
  if running_max > 0 then
    local kept = field(holders, digest)
    local ok, ids = pcall(cjson.decode, kept or '[]')
    for _, id in ipairs(ok and type(ids) == 'table' and ids or {}) do
      if occupies(id, digest) then g.holders[#g.holders + 1] = id else g.changed = true end
    end
    g.changed = g.changed or (kept and #g.holders == 0)
  end
  if count > 0 then
    local kept = redis.call('ZSCORE', limits, digest)
    g.tat = tat_now(tonumber(kept or now_us), now_us, count, per_us, burst)
    -- One that was cut is written, too: see `limited_to_unack`.
    g.went = tonumber(kept or 0) > g.tat
  end
  groups[digest] = g
  return g
end

local function holds(g, id)
  for _, holder in ipairs(g.holders) do
    if holder == id then return true end
  end
  return false
end

-- When to look at it again, unix us; false when it may go.
local function blocked_until(g, id)
  if running_max > 0 and #g.holders >= running_max and not holds(g, id) then
    return now_us
  end
  local wait_us = count > 0 and wait_by(g.tat, now_us, count, per_us, burst) or 0
  return wait_us > 0 and now_us + wait_us
end

local ids, chosen, from_pending = {}, {}, {}
local function go(g, id)
  ids[#ids + 1] = id
  chosen[id] = true
  if running_max > 0 and not holds(g, id) then
    g.holders[#g.holders + 1] = id
    g.changed = true
  end
  if count > 0 then
    g.tat = tat_after(g.tat, 1, count, per_us)
    g.went = true
  end
end

local function forget(member, id)
  redis.call('ZREM', line, member)
  if id then redis.call('HDEL', at, id) end
end

-- Lets go what is first aside in a key.
local function wake(digest)
  local g = group(digest)
  for _, member in ipairs(in_key(digest, math.min(wanted - #ids, 100) + 1)) do
    if #ids >= wanted then return end
    local place, id = string.match(member, '^%x+:(%d+):(.*)$')
    local kept, due_at = field(at, id or ''), redis.call('ZSCORE', pending, id or '')
    local is_aside = kept and due_at
      and kept == mark(digest, place, score_to_ms(due_at))
    if is_aside and not redis.call('ZSCORE', unack, id) then
      g.look = blocked_until(g, id)
      if g.look then return end
      go(g, id)
      from_pending[#from_pending + 1] = id
      forget(member, id)
    elseif kept and not due_at and field(counts, id) and not redis.call('ZSCORE', unack, id) then
      -- Its minute is over, and it is in line: it is looked at there.
      g.look = now_us + 100000
      return
    else
      -- It was cancelled, moved, rescheduled or delivered by others.
      forget(member, kept and string.sub(kept, 1, #digest + 1 + #place) == digest .. ':' .. place and id)
    end
  end
end
local function wake_all(from, to)
  for _, digest in ipairs(redis.call('ZRANGE', keys, from, to, 'BYSCORE', 'LIMIT', 0, KEYS_MAX)) do
    if #ids < wanted then wake(digest) end
  end
end
wake_all('-inf', now_us)
-- Further ahead than any limit puts a key: the clock was set back since.
local latest_us = now_us + math.max(IDLE_US, count > 0 and math.ceil(burst * per_us / count) or 0)
wake_all(string.format('(%.0f', latest_us), '+inf')

-- A message that is first in line: it goes, or is set aside behind those of its key.
local function meet(id, digest, entry)
  local g = group(digest)
  local is_holder = holds(g, id)
  local place = entry and string.match(entry, '^' .. digest .. ':(%d+):')
  local other, other_place = string.match(entry or '', '^(%x+):(%d+):')
  -- From when another header told the keys.
  if other and not place then forget(string.format('%s:%s:%s', other, other_place, id), id) end
  local first = in_key(digest, 1)[1]
  local is_first = is_holder or not first or first == string.format('%s:%s:%s', digest, place or '', id)
  local look = is_first and blocked_until(g, id)
  if is_first and not look then
    go(g, id)
    if place then forget(string.format('%s:%s:%s', digest, place, id), id) end
    return
  end
  if look then g.look = look end
  if not place then
    -- A retry comes before its successors.
    place = string.format('%016d', is_holder and 0 or redis.call('HINCRBY', at, '', 1))
  end
  redis.call('ZADD', pending, score(aside_ms), id)
  redis.call('HSET', at, id, mark(digest, place, aside_ms))
  redis.call('ZADD', line, '0', string.format('%s:%s:%s', digest, place, id))
  redis.call('HDEL', due, id)
end
local looked_at = 0
while #ids < wanted and looked_at < LOOKS_MAX do
  local some, taken = in_line(math.min(wanted - #ids, LOOKS_MAX - looked_at))
  if taken[1] + taken[2] == 0 then break end
  looked_at = looked_at + taken[1] + taken[2]
  if #some > 0 then
    local texts = redis.call('HMGET', headers, unpack(some))
    local entries = redis.call('HMGET', at, unpack(some))
    for i, id in ipairs(some) do
      if not chosen[id] then meet(id, key_of(texts[i]), entries[i]) end
    end
  end
  take_out(taken)
end

local reserved = to_unack(ids, {0, 0}, redis.call('ZCARD', unack), 15, 8)
reserved[1] = #ids
if #from_pending > 0 then redis.call('ZREM', pending, unpack(from_pending)) end
for digest, g in pairs(groups) do
  if g.changed then
    if #g.holders > 0 then
      redis.call('HSET', holders, digest, cjson.encode(g.holders))
    else
      redis.call('HDEL', holders, digest)
    end
  end
  if g.went then redis.call('ZADD', limits, string.format('%.0f', g.tat), digest) end
  if in_key(digest, 1)[1] then
    redis.call('ZADD', keys, string.format('%.0f', g.look or now_us), digest)
  elseif #g.holders > 0 then
    redis.call('ZADD', keys, string.format('%.0f', now_us + IDLE_US), digest)
  else
    redis.call('ZREM', keys, digest)
  end
end
-- A time that is over means the same as none.
local over = redis.call('ZRANGE', limits, '-inf', string.format('%.0f', now_us), 'BYSCORE', 'LIMIT', 0, 100)
for _, name in ipairs(over) do
  -- That of `fair_to_unack` is no time.
  if name ~= 'turn' then redis.call('ZREM', limits, name) end
end
local has_more = looked_at >= LOOKS_MAX and #ids < wanted
if redis.call('ZCARD', line) == 0 then
  if shown then redis.call('ZREM', limits, 'until') end
  return {has_more and 1 or 0, reserved}
end
redis.call('ZADD', limits, string.format('%.0f', now_us + 2000000), 'until')
if has_more then return {1, reserved} end
local next_key = redis.call('ZRANGE', keys, string.format('(%.0f', now_us), '+inf', 'BYSCORE',
  'LIMIT', 0, 1, 'WITHSCORES')
return {next_key[2] and math.max(tonumber(next_key[2]) - now_us, 1) or -1, reserved}
