-- clock: the one reading of the time in a script. Two TIME calls in one script differ, and a
-- host's clock decides nothing.
--
-- now_ms is rounded down, so what is compared with it is never due early. now_ceil_ms is rounded
-- up, so what is added to it never ends early.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now_ceil_ms = time[1] * 1000 + math.ceil(time[2] / 1000)

-- Scores are unix seconds with exactly three decimals: the same decimal text is always the same
-- double, so comparisons are exact.
local function score(ms)
  return string.format('%.3f', ms / 1000)
end

local function score_to_ms(text)
  return math.floor(tonumber(text) * 1000 + 0.5)
end

-- Microseconds from now on, 0 for what is over; -1 when there is no time. What sleeps for them wakes
-- on time and not a millisecond later.
local function us_until(ms)
  return ms and math.max(ms * 1000 - time[1] * 1000000 - time[2], 0) or -1
end
