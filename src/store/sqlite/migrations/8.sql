-- Schema 8: events and who listens to them, by the names of queues, which need not be there yet. They are
-- gone soon, and nothing depends on them.

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
