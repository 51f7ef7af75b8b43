#!lua
-- keep_results: what handlers returned, for those who ask. Of all that is there, the latest are kept.
-- moves no message
--
-- KEYS[1] {dp:<queue>}:results        hash  id -> bytes
-- KEYS[2] {dp:<queue>}:results:order  list  size and id of each, latest first
-- ARGV[1] how many bytes are kept
-- ARGV[2..] id and bytes of each, oldest first, at most 1,000
--
-- Returns how many are kept.
-- Crash safety: one script. A host that dies before it leaves out what it would have kept. Nothing
-- repairs that, since it is only shown. A repeat keeps the same again.
local results, order, left = KEYS[1], KEYS[2], tonumber(ARGV[1])
redis.call('HLEN', results)
local before, entries = redis.call('LRANGE', order, 0, -1), {}
for at = #ARGV - 1, 2, -2 do entries[#entries + 1] = #ARGV[at + 1] .. ' ' .. ARGV[at] end
for _, entry in ipairs(before) do entries[#entries + 1] = entry end
local kept, is_kept, gone = 0, {}, {}
for number, entry in ipairs(entries) do
  local space = string.find(entry, ' ', 1, true) or #entry
  local size, id = tonumber(string.sub(entry, 1, space - 1)) or 0, string.sub(entry, space + 1)
  if left >= size and number <= 1000 then
    left, kept, is_kept[id] = left - size, number, true
  else
    left = -1
    if not is_kept[id] then gone[#gone + 1] = id end
  end
end
for at = 2, #ARGV, 2 do
  if is_kept[ARGV[at]] then redis.call('HSET', results, ARGV[at], ARGV[at + 1]) end
  redis.call('LPUSH', order, #ARGV[at + 1] .. ' ' .. ARGV[at])
end
for _, id in ipairs(gone) do redis.call('HDEL', results, id) end
if kept == 0 then redis.call('DEL', order) else redis.call('LTRIM', order, 0, kept - 1) end
return kept
