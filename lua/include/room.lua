-- room: how many the limits of the queue as a whole let go. After `clock`, `gcra` and `reserve`; shared by
-- `limited_to_unack` and `fair_to_unack`.
--
-- KEYS[9] is limits; ARGV[1] is the most to reserve, ARGV[4] to ARGV[7] are the limits.
local limits, wanted = KEYS[9], tonumber(ARGV[1])
local count, per_us = tonumber(ARGV[4]), tonumber(ARGV[5])
local burst, running_max = tonumber(ARGV[6]), tonumber(ARGV[7])
local now_us = time[1] * 1000000 + time[2]
local kept = redis.call('ZMSCORE', limits, 'rate', 'until', 'turn')
local room, tat = wanted, false
if count > 0 then
  tat = tat_now(tonumber(kept[1] or now_us), now_us, count, per_us, burst)
  room = math.min(room, allowed_by(tat, now_us, count, per_us, burst))
end
if running_max > 0 then
  room = math.min(room, math.max(running_max - redis.call('ZCARD', unack), 0))
end

-- Writes down that so many went. A TAT that was cut is written as well. Else it is cut again each time, and
-- the wait never ends.
local function went(number)
  if tat and (number > 0 or tonumber(kept[1] or 0) > tat) then
    tat = tat_after(tat, number, count, per_us)
    redis.call('ZADD', limits, string.format('%.0f', tat), 'rate')
  end
end

-- us until a limit lets the next one go; 0 when none holds it back, -1 when one in unack has to be settled
-- first.
local function held_for()
  local wait_us = tat and wait_by(tat, now_us, count, per_us, burst) or 0
  if wait_us == 0 and running_max > 0 and redis.call('ZCARD', unack) >= running_max then return -1 end
  return wait_us
end
