-- Schema 3: ids that are sent once, also when their messages are gone.

CREATE TABLE dedup (
  queue    INTEGER NOT NULL REFERENCES queues,
  id       TEXT NOT NULL,
  until_ms INTEGER NOT NULL,            -- so long a send with it finds it there
  PRIMARY KEY (queue, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX dedup_until ON dedup (queue, until_ms);
