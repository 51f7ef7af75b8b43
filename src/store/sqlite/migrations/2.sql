-- Schema 2: queues that can be paused, and what has failed is found without a walk over the rest.

ALTER TABLE queues ADD COLUMN paused INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1));

-- Few messages have failed, and a query must say `failed > 0` to use it.
CREATE INDEX messages_failed ON messages (queue, state) WHERE failed > 0;
