-- Schema 9: schedules that are paused, or whose ticks do not overlap; repeats of messages that run, each of which
-- takes effect in the transaction that ends the run; and queues that subscribe to topics.

CREATE TABLE schedules (
  queue      INTEGER NOT NULL REFERENCES queues,
  name       TEXT NOT NULL,
  paused_ms  INTEGER NOT NULL,          -- since when it is paused, or 0
  resumed_ms INTEGER NOT NULL,          -- when the last pause ended, or 0
  skipped    INTEGER NOT NULL,          -- ticks that were skipped
  last       TEXT NOT NULL,             -- id of the last tick that was sent, or nothing
  PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;

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
