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

-- The first line of its history.
local function origin(old, now)
  return string.format('{"redriven_from":%s,"at_ms":%.0f}', cjson.encode(old), now)
end
