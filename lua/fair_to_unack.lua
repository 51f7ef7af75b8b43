#!lua flags=allow-oom
-- fair_to_unack: reserve waiting messages under a lease, so that the keys that wait take turns. The key of a
-- message is the value of one of its headers. What waits for its turn is set aside in the line of its key.
-- ready, retry -> unack or pending; pending -> unack for what was set aside
--
-- KEYS[1] {dp:<queue>}:ready      list    ids, oldest at the right
-- KEYS[2] {dp:<queue>}:retry      list    ids, oldest at the right
-- KEYS[3] {dp:<queue>}:unack      zset    id -> end of the lease, unix seconds
-- KEYS[4] {dp:<queue>}:retry:cnt  hash    id -> retries left; read only
-- KEYS[5] {dp:<queue>}:attempts   hash    id -> "failed:released"; read only
-- KEYS[6] {dp:<queue>}:due        hash    id -> unix ms at which it became due
-- KEYS[7] {dp:<queue>}:headers    hash    id -> JSON
-- KEYS[8] {dp:<queue>}:paused     string  1 while the queue is paused; read only
-- KEYS[9] {dp:<queue>}:limits     zset    as in `limited_to_unack`; `turn` -> the virtual time
-- KEYS[10] {dp:<queue>}:pending   zset    id -> due time, unix seconds
-- KEYS[11] {dp:<queue>}:limited   zset    "SHA-1:place:id" of what is set aside, by key and in order; score 0
-- KEYS[12] {dp:<queue>}:limited:at  hash  id -> "SHA-1:place:due ms" of the same; "" -> the last place
-- KEYS[13] {dp:<queue>}:limited:turns  zset  SHA-1 -> virtual time at which its next message starts
-- KEYS[14] {dp:<queue>}:limited:run  string  "SHA-1:number:id": all in ready up to this message, so many, are
--         of one key and stay there. ":number": so many are to be sorted first.
-- KEYS[14+i] {dp:<queue>}:msg:<id> string  the payload of a message that may be among them; read only
-- ARGV[1] to ARGV[7] as in `limited_to_unack`, for the queue as a whole. ARGV[1] may be 0: then the call
--         only sorts.
-- ARGV[8] the name of the header; messages without it share one key
-- ARGV[9] the weights of keys, JSON [[value, weight]]; empty if each key has the weight 1
-- ARGV[9+i] the id of that message
--
-- Returns {us until the next call has something to do, 1 when there is more to sort, 0 when nothing is set
-- aside, what `ready_to_unack` answers}.
-- Start-time fair queueing (Goyal, Vin and Cheng 1996). The key whose next message starts first is next; each
-- message puts its key back by STEP, divided by the weight of the key. A key that comes back from idleness
-- starts at the virtual time, or where it left off if that is later. The virtual time is the start of what went
-- last. It also goes on by one for each message, so that keys that come and go for ever do not keep those with a
-- start behind them waiting.
-- The key that has most stays in ready, and the few of others are taken out from between (the run). So a
-- queue with one large key is not written anew. If there are too many others, all are set aside.
-- Crash safety: what is set aside is pending, due in 60 to 90 s, and put off while hosts call this. So all
-- that knows pending finds it, and without such hosts it comes back by itself. KEYS[11] to KEYS[14] are
-- hints: an entry counts only while its id is pending with the same due time, and the key of what is in the
-- run is read again when it goes. Starts that are lost are as if every key had been idle.
-- include: clock
-- include: gcra
-- include: reserve
if redis.call('EXISTS', KEYS[8]) == 1 then return {0, {0}} end
-- include: room
-- include: header_key
local ready, retry, line, turns = KEYS[1], KEYS[2], KEYS[11], KEYS[13]
local STEP = 1000
local steps = {}
if ARGV[9] ~= '' then
  for _, pair in ipairs(cjson.decode(ARGV[9])) do
    steps[redis.sha1hex(pair[1])] = math.floor(STEP / pair[2] + 0.5)
  end
end
-- Ids in line that one call sorts.
local LOOKS_MAX, LOOK_US = 500, 5000000
local virtual = math.max(tonumber(kept[3] or 0), 0)

-- us until the next call, when so many went and so many are left.
local function look_in(number, left_aside, left_in_run)
  local wait_us = number == room and room < wanted and left_aside + left_in_run > 0 and held_for() or 0
  if left_aside > 0 or wait_us ~= 0 then
    redis.call('ZADD', limits, string.format('%.0f', now_us + 2 * LOOK_US), 'until')
  elseif kept[2] then
    redis.call('ZREM', limits, 'until')
  end
  return wait_us > 0 and math.min(wait_us, LOOK_US) or LOOK_US
end

-- Without others nobody takes turns: the oldest go. Virtual time stands still, since only the distance of
-- the one key from it counts. Returns nothing, and has changed nothing, if there are others or there is more
-- to see to.
local function without_others()
  local was_run = redis.call('GET', KEYS[14])
  local digest, number, newest = string.match(was_run or '', '^(%x+):(%d+):(.*)$')
  number = tonumber(number or 0)
  local length = redis.call('LLEN', ready)
  local behind = length - number
  if room == 0 or number <= room or behind < 0 or redis.call('EXISTS', retry, line) > 0
    or redis.call('LINDEX', ready, -number) ~= newest or redis.call('ZCARD', turns) ~= 1
    or tonumber(redis.call('ZSCORE', turns, digest) or -1) ~= virtual + (steps[digest] or STEP) then
    return
  end
  local function are_of_one(ids)
    local texts, ours = redis.call('HMGET', headers, unpack(ids))
    for i = 1, #ids do
      local text = texts[i]
      if text ~= ours then
        if key_of(text) ~= digest then return end
        ours = text
      end
    end
    return texts
  end
  -- What has come since then, or was not sorted yet.
  local more = math.min(behind, LOOKS_MAX)
  if more > 0 then
    local newer = redis.call('LRANGE', ready, behind - more, behind - 1)
    if not are_of_one(newer) then return end
    newest = newer[1]
  end
  local tail = redis.call('LRANGE', ready, -room, -1)
  local ids, seen = {}, {}
  for i = room, 1, -1 do
    local id = tail[i]
    if seen[id] then return end
    seen[id], ids[room - i + 1] = true, id
  end
  local held = redis.call('ZCARD', unack)
  if held > 0 then
    local leased = redis.call('ZMSCORE', unack, unpack(ids))
    for i = 1, room do
      if leased[i] then return end
    end
  end
  local texts = are_of_one(ids)
  if not texts then return end
  local reserved = to_unack(ids, {room, 0}, held, 14, 9, texts)
  went(room)
  number = number + more - room
  redis.call('SET', KEYS[14], string.format('%s:%.0f:%s', digest, number, newest))
  local wait_us = look_in(room, 0, number)
  return {behind > more and 1 or wait_us, reserved}
end
local alone = without_others()
if alone then return alone end
-- include: aside
-- include: foreign
local was_virtual = virtual
-- Ids aside that one call puts off.
local RENEWALS_MAX = 500
-- Messages of others that one call meets in the run.
local STRANGERS_MAX = 500
-- The most that one call takes out of ready from between others, and ids that it passes on the way: 5 ms.
local OTHERS_MAX, WALK_MAX = 8, 300000
-- All that is set aside in a period has one due time, so that it is found by it. Never a whole second: those
-- are due times that a delayqueue producer has cut.
local PERIOD_MS = 30000
local function end_of(period)
  return (math.floor(now_ms / PERIOD_MS) + period) * PERIOD_MS + 1
end
local aside_ms = end_of(3)
-- What is of another type is found before anything is changed. The above reads all that it changes.
for _, key in ipairs({ready, retry}) do redis.call('LLEN', key) end
for _, key in ipairs({pending, line, turns, unack}) do redis.call('ZCARD', key) end
for _, key in ipairs({at, due, headers, counts, KEYS[5]}) do redis.call('HLEN', key) end

local function set_start(digest, start)
  redis.call('ZADD', turns, string.format('%.0f', start), digest)
end

-- What is due in this period is put off, and found again if its key has lost its turn.
local function put_off()
  local soon_ms = end_of(1)
  local soon = redis.call('ZRANGE', pending, score(soon_ms), score(soon_ms), 'BYSCORE',
    'LIMIT', 0, RENEWALS_MAX)
  if #soon == 0 then return false end
  local scores, marks, starts = {}, {}, {}
  for i, kept in ipairs(redis.call('HMGET', at, unpack(soon))) do
    local digest, place, due_ms = string.match(kept or '', '^(%x+):(%d+):(%d+)$')
    -- The payload of a foreign one expires. Its expiry is taken off when it comes back by itself.
    if tonumber(due_ms) == soon_ms and not is_foreign(soon[i]) then
      scores[#scores + 1] = score(aside_ms)
      scores[#scores + 1] = soon[i]
      marks[#marks + 1] = soon[i]
      marks[#marks + 1] = mark(digest, place, aside_ms)
      starts[digest] = true
    end
  end
  if #scores == 0 then return false end
  redis.call('ZADD', pending, unpack(scores))
  redis.call('HSET', at, unpack(marks))
  for digest in pairs(starts) do
    if not redis.call('ZSCORE', turns, digest) then set_start(digest, virtual) end
  end
  return #soon == RENEWALS_MAX
end
local has_more = put_off()

-- first: met in retry; line: aside and checked; last: met in ready. Each has the place of its next one.
local groups = {}
local function group(digest)
  local g = groups[digest]
  if not g then
    g = {digest = digest, first = {}, line = {}, last = {}, from = '[' .. digest .. ':', is_read = false}
    for _, part in ipairs({'first', 'line', 'last'}) do g[part].next = 1 end
    groups[digest] = g
  end
  return g
end

-- The run: so many of the oldest in ready. taken: how many of the oldest leave ready; out: what leaves it
-- from between, and from which end it is to be looked for.
local length, was_run = redis.call('LLEN', ready), redis.call('GET', KEYS[14])
local run, to_sort, taken, out, is_over, is_cut = {number = 0}, 0, 0, {}, false, false
local digest_was, number_was, newest_was = string.match(was_run or '', '^(%x*):(%d+):?(.*)$')
if digest_was == '' then
  to_sort = math.min(tonumber(number_was), length)
elseif digest_was then
  local number = tonumber(number_was)
  -- To search a long list takes milliseconds, and most often the message is where it was.
  if number == 0 or number > length or redis.call('LINDEX', ready, -number) ~= newest_was then
    -- Others take messages out of ready. When the newest of the run is gone, all is sorted.
    local place = redis.call('LPOS', ready, newest_was, 'MAXLEN', WALK_MAX)
    number = place and length - place
  end
  if number then run = {digest = digest_was, number = number} else to_sort = length end
end

local met, back, members_out, ids_out, seen = {}, {}, {}, {}, {}

-- What is known of some ids, oldest first, each once and without what is in unack.
local function look(list)
  local ids, all = {}, {}
  for i = #list, 1, -1 do ids[#ids + 1] = list[i] end
  if #ids == 0 then return all end
  local leased = redis.call('ZMSCORE', unack, unpack(ids))
  local texts = redis.call('HMGET', headers, unpack(ids))
  local marks = redis.call('HMGET', at, unpack(ids))
  for i, id in ipairs(ids) do
    if not leased[i] and not seen[id] then
      all[#all + 1] = {id = id, digest = key_of(texts[i]), mark = marks[i], at = i - 1}
    end
    seen[id] = true
  end
  return all
end

-- A message leaves its list: it goes, or is set aside.
local function meet(one, part)
  local g = group(one.digest)
  one.group = g
  met[#met + 1] = one
  local digest, place = string.match(one.mark or '', '^(%x+):(%d+):')
  if digest == g.digest then
    -- Its time was over. It keeps its place, and is found there.
    one.place = place
    back[one.id] = one
    return
  end
  g[part][#g[part] + 1] = one
  if digest then
    members_out[#members_out + 1] = string.format('%s:%s:%s', digest, place, one.id)
    ids_out[#ids_out + 1] = one.id
  end
end

-- What is in line: half of retry at most, so that neither keeps the other waiting.
local retries = redis.call('LRANGE', retry, -LOOKS_MAX / 2, -1)
for _, one in ipairs(look(retries)) do
  one.is_retry = true
  meet(one, 'first')
end
local known = run.number
local readies = redis.call('LRANGE', ready, #retries - LOOKS_MAX - known, -known - 1)
local is_sorted = #retries < LOOKS_MAX / 2 and known + #readies >= length

-- Those of others behind the run. Of the rest nothing is asked but the key.
local function others_behind()
  if #readies == 0 then return {} end
  local texts, marks = redis.call('HMGET', headers, unpack(readies)), {}
  if redis.call('HLEN', at) > 0 then marks = redis.call('HMGET', at, unpack(readies)) end
  local some, places, number, ours = {}, {}, #readies, nil
  for i = 1, number do
    local text = texts[i]
    if text ~= ours and key_of(text) == run.digest then ours = text end
    if marks[i] or text ~= ours then
      some[#some + 1] = readies[i]
      places[readies[i]] = number - i
    end
  end
  local others = look(some)
  for _, one in ipairs(others) do one.at = places[one.id] end
  return others
end

local function sort_ready()
  local all, others, walk = {}, {}, 0
  if run.digest then
    others = others_behind()
  else
    all = look(readies)
    for _, one in ipairs(all) do
      if one.digest ~= all[1].digest or one.mark then others[#others + 1] = one end
    end
  end
  for _, one in ipairs(others) do
    walk = walk + math.min(known + one.at, length - known - one.at)
  end
  local digest = run.digest or all[1] and all[1].digest
  if digest and to_sort == 0 and #others <= OTHERS_MAX and walk <= WALK_MAX then
    for _, one in ipairs(others) do
      meet(one, 'last')
      out[one.id] = (known + one.at) * 2 > length and 1 or -1
    end
    run = {digest = digest, number = known + #readies}
  elseif known > 0 then
    -- From the next call on, all of it is sorted.
    is_over, is_sorted = true, false
  else
    for _, one in ipairs(all) do meet(one, 'last') end
    taken, to_sort = #readies, math.max(to_sort - #readies, 0)
  end
end
sort_ready()
if run.digest then group(run.digest) end
for digest in pairs(groups) do
  local start = tonumber(redis.call('ZSCORE', turns, digest) or -1)
  -- Idleness gives no credit.
  local has_waited = known > 0 and digest == digest_was or start >= virtual or in_key(digest, 1)[1]
  if start < 0 or not has_waited then set_start(digest, virtual) end
end

local ids, chosen, from_pending = {}, {}, {}
-- Reads on in the line of a key. What was cancelled, moved, rescheduled or delivered by others is forgotten.
local function read_line(g)
  local number = math.min(room - #ids, 100) + 10
  local members = redis.call('ZRANGE', line, g.from, '(' .. g.digest .. ';', 'BYLEX', 'LIMIT', 0, number)
  g.is_read = #members < number
  if #members == 0 then return end
  g.from = '(' .. members[#members]
  local places, some = {}, {}
  for i, member in ipairs(members) do
    places[i], some[i] = string.match(member, '^%x+:(%d+):(.*)$')
    some[i] = some[i] or ''
  end
  local kept = redis.call('HMGET', at, unpack(some))
  local due_at = redis.call('ZMSCORE', pending, unpack(some))
  local leased = redis.call('ZMSCORE', unack, unpack(some))
  for i, id in ipairs(some) do
    local is_its_place = string.sub(kept[i] or '', 1, #g.digest + #(places[i] or '') + 2)
      == string.format('%s:%s:', g.digest, places[i] or '')
    local is_aside = is_its_place and due_at[i] and not leased[i]
      and kept[i] == mark(g.digest, places[i], score_to_ms(due_at[i]))
    local again = is_its_place and back[id]
    if is_aside or again then
      g.line[#g.line + 1] = again or {id = id, group = g, is_aside = true}
      g.line[#g.line].member = members[i]
    elseif not is_its_place or leased[i] or due_at[i] or is_sorted then
      members_out[#members_out + 1] = members[i]
      if is_its_place then ids_out[#ids_out + 1] = id end
    end
    -- The rest may be in line further on.
  end
end

-- The next in the run. What is not as was thought is met as if it had been seen now.
local ahead, strangers, from_run = {next = 0}, 0, {}
local function next_in_run()
  while taken < run.number do
    if strangers >= STRANGERS_MAX then
      -- From the next call on, all of it is sorted.
      is_cut, is_sorted = true, false
      return
    end
    if ahead.next == 0 then
      local number = math.min(run.number - taken, math.max(room - #ids, 1))
      local some = redis.call('LRANGE', ready, -taken - number, -taken - 1)
      if #some == 0 then return end
      ahead = {
        ids = some, next = #some,
        leased = redis.call('ZMSCORE', unack, unpack(some)),
        texts = redis.call('HMGET', headers, unpack(some)),
      }
    end
    local at_next = ahead.next
    local id, text = ahead.ids[at_next], ahead.texts[at_next]
    ahead.next, taken = at_next - 1, taken + 1
    if out[id] then
      out[id] = false
    elseif not ahead.leased[at_next] and not chosen[id] then
      if text ~= ahead.ours and key_of(text) == run.digest then ahead.ours = text end
      if text == ahead.ours then
        from_run.id = id
        return from_run
      end
      local one = {id = id, digest = key_of(text)}
      strangers = strangers + 1
      one.mark = redis.call('HMGET', at, one.id)[1]
      meet(one, 'last')
      if not redis.call('ZSCORE', turns, one.digest) then set_start(one.digest, virtual) end
    end
  end
end

local function next_met(part)
  local one = part[part.next]
  if one then part.next = part.next + 1 end
  return one
end

-- The next of a key, to be used before the next is asked for.
local function next_of(g)
  while g.line.next > #g.line and g.first.next > #g.first and not g.is_read do read_line(g) end
  return next_met(g.first) or next_met(g.line) or next_met(g.last) or g.digest == run.digest and next_in_run()
end

local number = 0
local function go(one)
  number = number + 1
  ids[number] = one.id
  chosen[one.id] = true
  if one.member then
    members_out[#members_out + 1] = one.member
    ids_out[#ids_out + 1] = one.id
  end
  if one.is_aside then from_pending[#from_pending + 1] = one.id end
end

while number < room do
  local two = redis.call('ZRANGE', turns, 0, 1, 'WITHSCORES')
  if not two[1] then
    -- Keys that have lost their turns are found by what is aside.
    local digest = string.match(redis.call('ZRANGE', line, 0, 0)[1] or '', '^(%x+):')
    if not digest or (groups[digest] and groups[digest].is_read) then break end
    set_start(digest, virtual)
    two, has_more = {digest, virtual}, true
  end
  local g, start, stop = group(two[1]), tonumber(two[2]), tonumber(two[4] or math.huge)
  local one = next_of(g)
  if not one then
    -- Idle for so long that it has nothing left to answer for.
    virtual = math.max(virtual, start)
    redis.call('ZREM', turns, g.digest)
  else
    local step = steps[g.digest] or STEP
    repeat
      go(one)
      virtual = math.min(math.max(virtual + 1, start), start + step)
      start = start + step
      one = number < room and start < stop and next_of(g)
    until not one
    set_start(g.digest, start)
  end
end

-- What was met and does not go is set aside.
local function set_aside()
  local scores, marks, members, undue, aside_now, number = {}, {}, {}, {}, {}, 0
  for _, one in ipairs(met) do
    if not chosen[one.id] and not one.place and not one.is_retry then number = number + 1 end
  end
  local place = number > 0 and redis.call('HINCRBY', at, '', number) - number
  for _, one in ipairs(met) do
    if not chosen[one.id] then
      if not one.place and not one.is_retry then
        place = place + 1
        one.place = string.format('%016d', place)
      end
      -- Retries come first within their key.
      one.place = one.place or string.rep('0', 16)
      scores[#scores + 1] = score(aside_ms)
      scores[#scores + 1] = one.id
      marks[#marks + 1] = one.id
      marks[#marks + 1] = mark(one.group.digest, one.place, aside_ms)
      members[#members + 1] = '0'
      members[#members + 1] = string.format('%s:%s:%s', one.group.digest, one.place, one.id)
      undue[#undue + 1] = one.id
      aside_now[one.group.digest] = true
    end
  end
  if #undue == 0 then return end
  redis.call('ZADD', pending, unpack(scores))
  redis.call('HSET', at, unpack(marks))
  redis.call('ZADD', line, unpack(members))
  redis.call('HDEL', due, unpack(undue))
  -- One may have lost its turn before it was met.
  for digest in pairs(aside_now) do redis.call('ZADD', turns, 'NX', string.format('%.0f', virtual), digest) end
end
local function in_steps(name, key, all)
  for i = 1, #all, 1000 do redis.call(name, key, unpack(all, i, math.min(i + 999, #all))) end
end
in_steps('ZREM', line, members_out)
in_steps('HDEL', at, ids_out)
set_aside()
local reserved = to_unack(ids, {0, 0}, redis.call('ZCARD', unack), 14, 9)
reserved[1] = #ids
take_out({taken, #retries})
local left_in_run = run.number > 0 and run.number - taken or 0
for id, from in pairs(out) do
  if from then
    redis.call('LREM', ready, from, id)
    left_in_run = left_in_run - 1
  end
end
in_steps('ZREM', pending, from_pending)
went(#ids)

if is_over or is_cut then to_sort, left_in_run = redis.call('LLEN', ready), 0 end
local newest = left_in_run > 0 and redis.call('LINDEX', ready, redis.call('LLEN', ready) - left_in_run)
local new_run = newest and string.format('%s:%.0f:%s', run.digest, left_in_run, newest)
  or to_sort > 0 and string.format(':%d', to_sort)
if new_run and new_run ~= was_run then
  redis.call('SET', KEYS[14], new_run)
elseif was_run and not new_run then
  redis.call('DEL', KEYS[14])
end
local left = redis.call('ZCARD', line)
has_more = has_more or not is_sorted
local wait_us = look_in(#ids, left, left_in_run)
if left + left_in_run == 0 and not has_more then
  -- Nobody waits for anybody: all start anew.
  redis.call('DEL', turns)
  if was_virtual > 0 then redis.call('ZREM', limits, 'turn') end
  return {0, reserved}
end
if virtual ~= was_virtual then
  redis.call('ZADD', limits, string.format('%.0f', virtual), 'turn')
end
if has_more then return {1, reserved} end
return {wait_us, reserved}
