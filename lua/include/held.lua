-- claims: the claims that the caller names in ARGV, from `first` on, one each `stride` arguments:
-- id, retries left, "failed:released". Three lists of equal length.
local function claims(first, stride)
  local ids, lefts, tries, n = {}, {}, {}, 0
  for at = first, #ARGV, stride do
    n = n + 1
    ids[n], lefts[n], tries[n] = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  end
  return ids, lefts, tries
end

-- held: which of these deliveries are still the current ones. Reads only.
--
-- A delivery is current when its id is in unack and its token is unchanged: the retries left and
-- the `failed:released` count, as `ready_to_unack` gave them out. Each redelivery changes at
-- least one of the two. A missing member is `false` in Lua, not nil.
--
-- Retries that are not on record are no difference. A delayqueue producer that intercepts the message
-- takes them away, and a message that never had any gets them when its payload was seen. A redelivery
-- by us changes `failed:released`. One by delayqueue changes the retries alone. So after an intercept a
-- host that was frozen may end delayqueue's delivery, and its producer has taken the message back.
--
-- ids, lefts, tries: lists of equal length, at most 1,000. Returns a list of booleans. A delivery
-- that is named twice is held the first time only.
local function held(unack, counts, attempts, ids, lefts, tries)
  local result, seen = {}, {}
  if #ids == 0 then return result end
  local leases = redis.call('ZMSCORE', unack, unpack(ids))
  local left_now = redis.call('HMGET', counts, unpack(ids))
  local tries_now = redis.call('EXISTS', attempts) == 1
    and redis.call('HMGET', attempts, unpack(ids)) or {}
  for i = 1, #ids do
    local id = ids[i]
    result[i] = not seen[id]
      and leases[i] ~= false
      and (left_now[i] or lefts[i]) == lefts[i]
      and (tries_now[i] or '') == tries[i]
    if result[i] then seen[id] = true end
  end
  return result
end

-- What is said of each of these deliveries, which end: 0 when its lease is lost, else 1, or 2 when a repeat
-- of its message waits for that. Reads only.
local function answers(repeats, ids, ours)
  local result = {}
  local kept = #ids > 0 and redis.call('EXISTS', repeats) == 1
    and redis.call('HMGET', repeats, unpack(ids)) or {}
  for i = 1, #ids do result[i] = not ours[i] and 0 or kept[i] and 2 or 1 end
  return result
end
