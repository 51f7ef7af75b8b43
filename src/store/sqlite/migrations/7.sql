-- Schema 7: keys that take turns. What is set aside for them is in limited.

CREATE TABLE fair_keys (
  queue    INTEGER NOT NULL REFERENCES queues,
  key      TEXT NOT NULL,               -- the value of the header, empty without one
  start_at INTEGER NOT NULL,            -- virtual time at which its next message starts
  PRIMARY KEY (queue, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX fair_keys_start ON fair_keys (queue, start_at);
