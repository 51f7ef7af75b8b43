-- The file of the embedded store, schema 1. All times are unix milliseconds.

-- One row a queue: its depths and totals, changed in the transaction that changes its messages.
CREATE TABLE queues (
  queue    INTEGER PRIMARY KEY,
  name     TEXT NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 64),
  head     INTEGER NOT NULL DEFAULT 0,  -- place of the next message that goes first in line
  tail     INTEGER NOT NULL DEFAULT 1,  -- place of the next one that goes last
  delivery INTEGER NOT NULL DEFAULT 0,  -- token of the last delivery
  pending INTEGER NOT NULL DEFAULT 0 CHECK (pending >= 0),
  ready   INTEGER NOT NULL DEFAULT 0 CHECK (ready >= 0),
  unack   INTEGER NOT NULL DEFAULT 0 CHECK (unack >= 0),
  retry   INTEGER NOT NULL DEFAULT 0 CHECK (retry >= 0),
  garbage INTEGER NOT NULL DEFAULT 0 CHECK (garbage >= 0),
  dead    INTEGER NOT NULL DEFAULT 0 CHECK (dead >= 0),
  moving  INTEGER NOT NULL DEFAULT 0 CHECK (moving >= 0),
  peer    TEXT,                         -- the store that messages are moving to or from
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
  CHECK ((moving > 0) <= (peer IS NOT NULL))
) STRICT;

-- One row a message. state: 1 pending, 2 ready, 3 unack, 4 retry, 5 garbage, 6 dead, 7 moving.
CREATE TABLE messages (
  seq          INTEGER PRIMARY KEY,
  queue        INTEGER NOT NULL REFERENCES queues,
  id           TEXT NOT NULL CHECK (id <> ''),
  state        INTEGER NOT NULL CHECK (state BETWEEN 1 AND 7),
  -- Order within the state: when it is due (pending), its lease ends (unack) or it died (dead);
  -- the place in line (ready, retry); as in the state before (moving); 0 (garbage).
  place        INTEGER NOT NULL,
  token        INTEGER,                 -- of its delivery
  was          INTEGER CHECK (was IN (1, 2, 4, 5, 6)), -- the state before it was moving
  due_ms       INTEGER,                 -- when it became due, if it waited for that
  failed       INTEGER NOT NULL DEFAULT 0 CHECK (failed >= 0),
  retries_left INTEGER NOT NULL CHECK (retries_left >= 0),
  headers      TEXT NOT NULL DEFAULT '', -- JSON, a list of pairs
  history      TEXT NOT NULL DEFAULT '', -- failed attempts, one JSON object a line
  payload      BLOB,                    -- missing only of what is dead or moving
  UNIQUE (queue, id),
  CHECK ((state = 3) = (token IS NOT NULL)),
  CHECK ((state = 7) = (was IS NOT NULL)),
  CHECK (payload IS NOT NULL OR state >= 5)
) STRICT;
CREATE INDEX messages_in_line ON messages (queue, state, place);

-- Who serves a queue, for people: nothing depends on it.
CREATE TABLE hosts (
  queue   INTEGER NOT NULL REFERENCES queues,
  host    TEXT NOT NULL,
  beat_ms INTEGER NOT NULL,
  info    TEXT NOT NULL,                -- JSON
  PRIMARY KEY (queue, host)
) STRICT, WITHOUT ROWID;
