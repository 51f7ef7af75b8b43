-- place: where an id is whose payload is gone. Reads only.
--
-- keys: {pending=, ready=, unack=, retry=, garbage=, moving=}. Returns `live` (it is to be handled),
-- `kept` (garbage or moving) or `nowhere`. Of dead letters `attempts` tells.
-- Cost: grows with the two lists when the id is in neither sorted set.
local function place_of(keys, id)
  if redis.call('ZSCORE', keys.pending, id) or redis.call('ZSCORE', keys.unack, id)
    or redis.call('LPOS', keys.ready, id) or redis.call('LPOS', keys.retry, id) then
    return 'live'
  end
  if redis.call('SISMEMBER', keys.garbage, id) == 1 or redis.call('ZSCORE', keys.moving, id) then
    return 'kept'
  end
  return 'nowhere'
end
