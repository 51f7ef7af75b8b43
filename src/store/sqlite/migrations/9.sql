-- Schema 9: schedules that are paused, or whose ticks do not overlap.

CREATE TABLE schedules (
  queue      INTEGER NOT NULL REFERENCES queues,
  name       TEXT NOT NULL,
  paused_ms  INTEGER NOT NULL,          -- since when it is paused, or 0
  resumed_ms INTEGER NOT NULL,          -- when the last pause ended, or 0
  skipped    INTEGER NOT NULL,          -- ticks that were skipped
  last       TEXT NOT NULL,             -- id of the last tick that was sent, or nothing
  PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;
