-- gcra: how many may go by a rate. No key, no clock: all is given. The same as `Rate::allowed` in
-- src/store/limits.rs.
--
-- The generic cell rate algorithm (ITU-T I.371, virtual scheduling). tat is the theoretical arrival
-- time: the time at which the next one comes if all come evenly. `per_us / count` is the time between
-- two, and the burst says by how much they may be early.
--
-- tat, now: us; tat is nil where there is none. All products are whole numbers below 2^53: count and
-- burst are at most 100,000, and per_us is at most a day.

-- A tat that is further ahead than a burst can bring it comes from a clock that was set back, or from
-- another rate.
local function tat_now(tat, now, count, per_us, burst)
  return math.max(math.min(tat or now, now + math.ceil(burst * per_us / count)), now)
end

-- How many may go now, 0 to burst.
local function allowed_by(tat, now, count, per_us, burst)
  local slack = (now - tat) * count + (burst - 1) * per_us
  return slack >= 0 and math.floor(slack / per_us) + 1 or 0
end

-- The tat after so many have gone. Rounded up, so that the rate is never exceeded.
local function tat_after(tat, number, count, per_us)
  return tat + math.ceil(number * per_us / count)
end

-- us until one may go, 0 when it may now.
local function wait_by(tat, now, count, per_us, burst)
  return math.max(math.ceil(((tat - now) * count - (burst - 1) * per_us) / count), 0)
end
