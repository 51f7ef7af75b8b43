-- header_key: the key of a message is the value of one of its headers. Shared by `keyed_to_unack` and
-- `fair_to_unack`.
--
-- ARGV[8] is the name of the header.
local header = ARGV[8]

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

-- The digest of a message's key; messages without the header share one. The next text is often the same.
local digest_of_value, last_text, last_digest = {}, nil, nil
local function key_of(text)
  if last_digest and text == last_text then return last_digest end
  local value = text and (plain_value(text) or decoded_value(text)) or ''
  local digest = digest_of_value[value]
  if not digest then
    digest = redis.sha1hex(value)
    digest_of_value[value] = digest
  end
  last_text, last_digest = text, digest
  return digest
end
