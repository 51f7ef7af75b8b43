-- redriven: what a message that is made from a dead letter starts with.

-- Its retries. tries: "failed:released:left" of the dead letter or false; wanted: retries, or ""
-- for the budget that the dead letter had; unknown: retries where that is not known.
local function budget_of(tries, wanted, unknown)
  if wanted ~= '' then return wanted end
  local failed, left = string.match(tries or '', '^(%d+):%d+:(%d+)')
  return failed and tonumber(failed) > 0 and string.format('%d', failed - 1 + left) or unknown
end

-- Its headers, or false. It need not begin by any time.
local function headers_of(text)
  if not text or not string.find(text, '"dqhost-expires-at"', 1, true) then return text end
  local kept = string.gsub(text, ',?%["dqhost%-expires%-at","[^"\\]*"%]', '')
  kept = string.gsub(kept, '^%[,', '[')
  return kept ~= '[]' and kept
end

-- How often the dead letter with this history was redriven: its first line says so, if it is an origin.
local function redrives_of(lines)
  local first = string.match(lines or '', '^[^\n]*')
  if not string.find(first, '"redriven_from"', 1, true) then return 0 end
  local ok, entry = pcall(cjson.decode, first)
  if not ok or type(entry) ~= 'table' or type(entry.redriven_from) ~= 'string' then return 0 end
  -- An earlier version did not count.
  local number = tonumber(entry.redrives or 1) or 1
  return number >= 0 and math.floor(math.min(number, 4294967294)) or 0
end

-- The first line of its history. redrives: how often its message was redriven before.
local function origin(old, now, redrives)
  return string.format('{"redriven_from":%s,"at_ms":%.0f,"redrives":%.0f}', cjson.encode(old), now, redrives + 1)
end
