#!lua flags=allow-oom
-- remove_exported: remove messages that have arrived in another store, or ids of which there is no more to move.
-- moving -> (nowhere)
--
-- KEYS[1] {dp:<queue>}:moving       zset    id -> since when, unix seconds
-- KEYS[2] {dp:<queue>}:moving:was   hash    id -> "state:ms"
-- KEYS[3] {dp:<queue>}:moving:peer  hash    run: the copy that may move; read only
-- KEYS[4] {dp:<queue>}:retry:cnt    hash    id -> retries left
-- KEYS[5] {dp:<queue>}:attempts     hash    id -> "failed:released[:left]"
-- KEYS[6] {dp:<queue>}:due          hash    id -> unix ms at which it became due
-- KEYS[7] {dp:<queue>}:headers      hash    id -> JSON
-- KEYS[8] {dp:<queue>}:history      hash    id -> failed attempts
-- KEYS[9] {dp:<queue>}:stats        hash    totals
-- KEYS[9+i] {dp:<queue>}:msg:<id>   string  the payload of message i
-- ARGV[1] the run of this copy
-- ARGV[2] 1 to drop only ids that have neither payload nor retries, which is counted; else 0
-- ARGV[2+i] id
--
-- Returns 0 when another copy has begun since, else 1. Ids that are not moving are left alone.
-- Crash safety: one script. A repeat finds nothing.
-- include: run
local moving, peer = KEYS[1], KEYS[3]
if not is_current(peer, ARGV[1]) then return 0 end
local is_drop = ARGV[2] == '1'
local ids = {unpack(ARGV, 3)}
if #ids == 0 then return 1 end
local since = redis.call('ZMSCORE', moving, unpack(ids))
for _, k in ipairs({2, 4, 5, 6, 7, 8}) do redis.call('HLEN', KEYS[k]) end

local gone, payloads = {}, {}
for i, id in ipairs(ids) do
  local is_kept = is_drop
    and (redis.call('EXISTS', KEYS[9 + i]) == 1 or redis.call('HEXISTS', KEYS[4], id) == 1)
  if since[i] and not is_kept then
    gone[#gone + 1] = id
    payloads[#payloads + 1] = KEYS[9 + i]
  end
end
if #gone == 0 then return 1 end
redis.call('DEL', unpack(payloads))
for _, k in ipairs({2, 4, 5, 6, 7, 8}) do redis.call('HDEL', KEYS[k], unpack(gone)) end
redis.call('ZREM', moving, unpack(gone))
if is_drop then redis.pcall('HINCRBY', KEYS[9], 'dropped', #gone) end
return 1
