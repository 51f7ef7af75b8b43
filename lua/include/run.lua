-- run: whether a call comes from the copy that began last. peer: the hash {name, run}.
local function is_current(peer, run)
  return redis.call('HGET', peer, 'run') == run
end
