-- Schema 8: events and who listens to them, by the names of queues, which need not be there yet. They are
-- gone soon, and nothing depends on them. And what handlers returned.

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
