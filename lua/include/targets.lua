-- targets: several queues that are sent to in one step. After `place` and `enqueue`.

-- The first half of the sends, which only reads. For each queue, from KEYS[key] on: pending, ready, retry:cnt,
-- headers, stats, dedup, attempts, due, history, unack, retry, garbage and moving, then the payloads' keys.
-- From ARGV[argument] on: the channel that wakes its hosts, the number of messages, and seven for each message
-- as in `send`. seen: keys of payloads that count as there already. Returns for each queue what `enqueue` takes.
local function incoming_each(key, argument, seen)
  local queues, looks = {}, 0
  while argument <= #ARGV do
    local to = {
      pending = KEYS[key], ready = KEYS[key + 1], counts = KEYS[key + 2],
      headers = KEYS[key + 3], stats = KEYS[key + 4], dedup = KEYS[key + 5],
      attempts = KEYS[key + 6], due = KEYS[key + 7], history = KEYS[key + 8],
      unack = KEYS[key + 9], retry = KEYS[key + 10], garbage = KEYS[key + 11],
      moving = KEYS[key + 12],
    }
    to.place_of = function(id)
      looks = looks + 1
      return looks > 20 and 'live' or place_of(to, id)
    end
    local channel, number = ARGV[argument], tonumber(ARGV[argument + 1])
    queues[#queues + 1] = {new = incoming(to, key + 13, argument + 2, number, seen), channel = channel}
    key, argument = key + 13 + number, argument + 2 + number * 7
  end
  return queues
end
