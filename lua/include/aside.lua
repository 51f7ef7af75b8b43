-- aside: what is set aside is pending with a due time of its own, and has a place in the line of its key. The
-- key of a message is the value of one of its headers. Shared by `keyed_to_unack` and `fair_to_unack`.
--
-- KEYS[10] to KEYS[12] are pending, limited and limited:at; ARGV[8] is the name of the header.
local pending, line, at, header = KEYS[10], KEYS[11], KEYS[12], ARGV[8]

-- The value of the header in JSON as hosts write it: no spaces, and a quote within a text has a backslash. So
-- this start is that of the pair and of nothing else. Nil when the value has an escape, or is not found so.
local pair_start = '["' .. header .. '","'
local function plain_value(text)
  local _, stop = string.find(text, pair_start, 1, true)
  return stop and string.match(text, '^([^"\\]*)"%]', stop + 1)
end

local function decoded_value(text)
  local ok, pairs_of = pcall(cjson.decode, text)
  for _, pair in ipairs(ok and type(pairs_of) == 'table' and pairs_of or {}) do
    if type(pair) == 'table' and pair[1] == header then return tostring(pair[2]) end
  end
  return ''
end

-- The digest of a message's key; messages without the header share one.
local digest_of_value = {}
local function key_of(text)
  local value = text and (plain_value(text) or decoded_value(text)) or ''
  local digest = digest_of_value[value]
  if not digest then
    digest = redis.sha1hex(value)
    digest_of_value[value] = digest
  end
  return digest
end

-- The first members in the line of a key.
local function in_key(digest, number)
  return redis.call('ZRANGE', line, '[' .. digest .. ':', '(' .. digest .. ';', 'BYLEX', 'LIMIT', 0, number)
end

-- What `at` has of a message that is aside.
local function mark(digest, place, due_ms)
  return string.format('%s:%s:%.0f', digest, place, due_ms)
end
