-- foreign: what is special about messages that a delayqueue producer sent. Only persist_all writes.
--
-- It cuts due times to whole seconds. The payload expires at the due time plus the TTL, to the
-- millisecond, so the expiry still has what was cut off.

-- True for an id that no dqhost made (UUID version 7, or 8 for what handlers send). The same sign
-- as is_foreign in src/store/redis/foreign.rs.
local SEVEN, EIGHT = string.byte('78', 1, 2)
local function is_foreign(id)
  local version = string.byte(id, 15)
  return version ~= SEVEN and version ~= EIGHT
end

-- When the payload expires, unix ms; negative when it does not. It is 0 for a user of Redis who may not
-- ask. PERSIST still tells whether it did, and the score is the due time.
local function expiry_of(key)
  local expiry_ms = redis.pcall('PEXPIRETIME', key)
  return type(expiry_ms) == 'number' and expiry_ms or 0
end

-- Takes the expiries off. Its producer counts nothing, and who takes the expiry off is the first of us
-- to see the message: so it is counted as sent.
local function persist_all(keys, stats)
  local sent = 0
  for _, key in ipairs(keys) do sent = sent + redis.call('PERSIST', key) end
  if sent > 0 then redis.pcall('HINCRBY', stats, 'sent', sent) end
end

-- When the message is due, unix ms. at_ms: its score, a whole second; expiry_ms: the expiry of its
-- payload.
--
-- The producer cuts the expiry to whole ms, so it may be 1 ms short. It is as late as the request was
-- under way. So 2 ms are added. Near the turn of a second the milliseconds alone do not tell on which
-- side of it the due time is. delayqueue's default TTL is an hour. A multiple of 30 s is taken for the
-- TTL that it is, and then the whole difference is known. With another TTL the later second is taken,
-- since nothing may be early.
local function exact_due(at_ms, expiry_ms)
  local over = expiry_ms - at_ms
  local fraction = (over + 1) % 30000 - 1
  if fraction >= 2000 then
    fraction = over % 1000
    if fraction < 100 then fraction = fraction + 1000 end
  end
  return at_ms + fraction + 2
end
