-- expiry: by when a new message has to begin. After `clock`.

-- Headers, with a time in the place of how long the message has to begin.
local function with_expiry(text)
  if not string.find(text, '"dqhost-expires-at"', 1, true) then return text end
  return (string.gsub(text, '%["dqhost%-expires%-at","%+(%d+)"%]', function(ms)
    if #ms > 15 then return nil end
    return string.format('["dqhost-expires-at","%.0f"]', now_ceil_ms + tonumber(ms))
  end))
end
