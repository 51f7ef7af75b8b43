-- Schema 6: how the latest messages ended, for people: nothing depends on it. One row for all that a host
-- tells of at a time.

CREATE TABLE ended (
  queue INTEGER NOT NULL REFERENCES queues,
  last  INTEGER NOT NULL,               -- number of its last message, counted from the first
  lines TEXT NOT NULL,                  -- one for each message, oldest first: unix ms, a space, JSON
  PRIMARY KEY (queue, last)
) STRICT;
