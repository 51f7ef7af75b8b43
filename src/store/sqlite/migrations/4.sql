-- Schema 4: what the limits of a queue remember.

CREATE TABLE limits (
  queue INTEGER NOT NULL REFERENCES queues,
  name  TEXT NOT NULL,                  -- rate: when the next one comes by the rate (TAT)
                                        -- until: so long what waits counts as held back
  at_us INTEGER NOT NULL,               -- unix microseconds
  PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;
