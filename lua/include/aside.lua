-- aside: what is set aside is pending with a due time of its own, and has a place in the line of its key. Shared
-- by `keyed_to_unack` and `fair_to_unack`.
--
-- KEYS[10] to KEYS[12] are pending, limited and limited:at.
local pending, line, at = KEYS[10], KEYS[11], KEYS[12]

-- The first members in the line of a key.
local function in_key(digest, number)
  return redis.call('ZRANGE', line, '[' .. digest .. ':', '(' .. digest .. ';', 'BYLEX', 'LIMIT', 0, number)
end

-- What `at` has of a message that is aside.
local function mark(digest, place, due_ms)
  return string.format('%s:%s:%.0f', digest, place, due_ms)
end
