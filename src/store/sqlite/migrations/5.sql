-- Schema 5: limits for each value of a header. Hints, which are checked before use: what is set aside
-- is pending.

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
