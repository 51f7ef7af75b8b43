-- The file of the embedded store, as it is now: what a new file starts with. All times are unix
-- milliseconds unless a name ends with _us. Whoever changes it writes migrations/N.sql for the files that
-- are there, and adds it in open.rs; a test compares the two.
--
-- A row with a large payload is cheap to change only while its size stays the same: then SQLite
-- writes the page that changes and not the payload again. So what changes between a send and an ack
-- is a number that takes as many bytes before as after: six for times, places and tokens (these two
-- count from 2^40), one for a state (0 and 1 would take none).

-- One row a queue: its depths and totals, changed in the transaction that changes its messages.
CREATE TABLE queues (
  queue    INTEGER PRIMARY KEY,
  name     TEXT NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 64),
  head     INTEGER NOT NULL DEFAULT 1099511627776, -- place of the next message that goes first in line
  tail     INTEGER NOT NULL DEFAULT 1099511627777, -- place of the next one that goes last
  delivery INTEGER NOT NULL DEFAULT 1099511627776, -- token of the last delivery
  pending INTEGER NOT NULL DEFAULT 0 CHECK (pending >= 0),
  ready   INTEGER NOT NULL DEFAULT 0 CHECK (ready >= 0),
  unack   INTEGER NOT NULL DEFAULT 0 CHECK (unack >= 0),
  retry   INTEGER NOT NULL DEFAULT 0 CHECK (retry >= 0),
  garbage INTEGER NOT NULL DEFAULT 0 CHECK (garbage >= 0),
  dead    INTEGER NOT NULL DEFAULT 0 CHECK (dead >= 0),
  moving  INTEGER NOT NULL DEFAULT 0 CHECK (moving >= 0),
  peer    TEXT,                         -- the store that messages move to or from, or moved last
  run     TEXT,                         -- the copy that may move them
  sent      INTEGER NOT NULL DEFAULT 0,
  acked     INTEGER NOT NULL DEFAULT 0,
  nacked    INTEGER NOT NULL DEFAULT 0,
  rejected  INTEGER NOT NULL DEFAULT 0,
  expired   INTEGER NOT NULL DEFAULT 0,
  released  INTEGER NOT NULL DEFAULT 0,
  died      INTEGER NOT NULL DEFAULT 0,
  redriven  INTEGER NOT NULL DEFAULT 0,
  cancelled INTEGER NOT NULL DEFAULT 0,
  deleted   INTEGER NOT NULL DEFAULT 0,
  paused    INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
  CHECK ((moving > 0) <= (peer IS NOT NULL))
) STRICT;

-- One row a message. state: 2 pending, 3 ready, 4 unack, 5 retry, 6 garbage, 7 dead, 8 moving.
CREATE TABLE messages (
  seq          INTEGER PRIMARY KEY,
  queue        INTEGER NOT NULL REFERENCES queues,
  id           TEXT NOT NULL,
  state        INTEGER NOT NULL CHECK (state BETWEEN 2 AND 8),
  -- Order within the state: when it is due (pending), its lease expires (unack) or it died (dead);
  -- the place in line (ready, retry); as in the state before (moving); 0 (garbage).
  place        INTEGER NOT NULL,
  token        INTEGER NOT NULL DEFAULT 1099511627776, -- of its latest delivery, if it had one
  was          INTEGER CHECK (was IN (2, 3, 5, 6, 7)), -- the state before it was moving
  due_ms       INTEGER,                 -- when it is or became due, if it waits or waited for that
  failed       INTEGER NOT NULL DEFAULT 0 CHECK (failed >= 0),
  retries_left INTEGER NOT NULL CHECK (retries_left >= 0),
  headers      TEXT NOT NULL DEFAULT '', -- JSON, a list of pairs
  history      TEXT NOT NULL DEFAULT '', -- failed attempts, one JSON object a line
  payload      BLOB,                    -- missing only of what is dead or moving
  UNIQUE (queue, id),
  CHECK (state <> 2 OR due_ms = place),
  CHECK ((state = 8) = (was IS NOT NULL)),
  CHECK (payload IS NOT NULL OR state >= 6)
) STRICT;
CREATE INDEX messages_in_line ON messages (queue, state, place);
-- Few messages have failed, and a query must say `failed > 0` to use it.
CREATE INDEX messages_failed ON messages (queue, state) WHERE failed > 0;

-- Who serves a queue, for people: nothing depends on it.
CREATE TABLE hosts (
  queue   INTEGER NOT NULL REFERENCES queues,
  host    TEXT NOT NULL,
  beat_ms INTEGER NOT NULL,
  info    TEXT NOT NULL,                -- JSON
  PRIMARY KEY (queue, host)
) STRICT, WITHOUT ROWID;

-- Ids that are sent once, also when their messages are gone.
CREATE TABLE dedup (
  queue    INTEGER NOT NULL REFERENCES queues,
  id       TEXT NOT NULL,
  until_ms INTEGER NOT NULL,            -- so long a send with it finds it there
  PRIMARY KEY (queue, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX dedup_until ON dedup (queue, until_ms);

-- Schedules that are paused, or whose ticks do not overlap.
CREATE TABLE schedules (
  queue      INTEGER NOT NULL REFERENCES queues,
  name       TEXT NOT NULL,
  paused_ms  INTEGER NOT NULL,          -- since when it is paused, or 0
  resumed_ms INTEGER NOT NULL,          -- when the last pause ended, or 0
  skipped    INTEGER NOT NULL,          -- ticks that were skipped
  last       TEXT NOT NULL,             -- id of the last tick that was sent, or nothing
  PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;

-- What the limits of a queue remember.
CREATE TABLE limits (
  queue INTEGER NOT NULL REFERENCES queues,
  name  TEXT NOT NULL,                  -- rate: when the next one comes by the rate (TAT)
                                        -- until: so long what waits counts as held back
                                        -- turn: the virtual time of fair_keys
  at_us INTEGER NOT NULL,               -- unix microseconds
  PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;

-- Limits for each value of a header. Hints, which are checked before use: what is set aside is pending.
CREATE TABLE limited (
  queue  INTEGER NOT NULL REFERENCES queues,
  id     TEXT NOT NULL,                 -- set aside while it is pending with this due time
  key    TEXT NOT NULL,                 -- the value of the header, empty without one
  place  INTEGER NOT NULL,              -- order within the key
  due_ms INTEGER NOT NULL,
  PRIMARY KEY (queue, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX limited_in_line ON limited (queue, key, place);

CREATE TABLE limit_keys (
  queue   INTEGER NOT NULL REFERENCES queues,
  key     TEXT NOT NULL,
  look_us INTEGER NOT NULL,             -- when to look at it next, unix microseconds
  tat_us  INTEGER NOT NULL,             -- when its next one comes by the rate (TAT), unix microseconds
  holders TEXT NOT NULL,                -- JSON, ids that occupy the key
  PRIMARY KEY (queue, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX limit_keys_look ON limit_keys (queue, look_us);

-- How the latest messages ended, for people: nothing depends on it. One row for all that a host tells
-- of at a time.
CREATE TABLE ended (
  queue INTEGER NOT NULL REFERENCES queues,
  last  INTEGER NOT NULL,               -- number of its last message, counted from the first
  lines TEXT NOT NULL,                  -- one for each message, oldest first: unix ms, a space, JSON
  PRIMARY KEY (queue, last)
) STRICT;

-- Keys that take turns. What is set aside for them is in limited.
CREATE TABLE fair_keys (
  queue    INTEGER NOT NULL REFERENCES queues,
  key      TEXT NOT NULL,               -- the value of the header, empty without one
  start_at INTEGER NOT NULL,            -- virtual time at which its next message starts
  PRIMARY KEY (queue, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX fair_keys_start ON fair_keys (queue, start_at);

-- Events and who listens to them, by the names of queues, which need not be there yet. They are gone
-- soon, and nothing depends on them.
CREATE TABLE listeners (
  queue    TEXT PRIMARY KEY,
  until_ms INTEGER NOT NULL             -- when it counts no more, unless it is said again
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
  seq   INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again, so that a listener sees what it has missed
  queue TEXT NOT NULL,
  at_ms INTEGER NOT NULL,
  lines TEXT NOT NULL                   -- a batch of events, one JSON object a line
) STRICT;

-- What handlers returned, the latest of each queue, for people: nothing depends on it.
CREATE TABLE results (
  seq   INTEGER PRIMARY KEY,
  queue INTEGER NOT NULL REFERENCES queues,
  id    TEXT NOT NULL,
  bytes BLOB NOT NULL
) STRICT;
CREATE INDEX results_of ON results (queue, id);

-- Repeats of messages that run. Each takes effect in the transaction that ends the run.
CREATE TABLE repeats (
  queue       INTEGER NOT NULL REFERENCES queues,
  id          TEXT NOT NULL,
  replaces    INTEGER NOT NULL CHECK (replaces IN (0, 1)), -- it replaces what is there then, or moves it
  due_ms      INTEGER NOT NULL,
  max_wait_ms INTEGER,                  -- so long after the first send it is due at the latest
  first_ms    INTEGER NOT NULL,         -- when the first repeat of this run came
  retries     INTEGER NOT NULL CHECK (retries >= 0),
  headers     TEXT NOT NULL,            -- JSON, a list of pairs
  payload     BLOB NOT NULL,
  PRIMARY KEY (queue, id)
) STRICT;

-- Queues that subscribe to topics, by name.
CREATE TABLE topics (
  topic TEXT NOT NULL,
  queue TEXT NOT NULL,
  PRIMARY KEY (topic, queue)
) STRICT, WITHOUT ROWID;
