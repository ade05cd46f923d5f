-- What a service needs that only publishes: the outbox, its relay, and what Kafka refuses of it.

-- Records to publish. Written inside business transactions, read in windows by the relay.
CREATE TABLE sekali.outbox (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid           xid8        NOT NULL DEFAULT pg_current_xact_id(),
    topic         text        NOT NULL,
    key           bytea,
    payload       bytea,
    header_names  text[]      NOT NULL DEFAULT '{}',
    header_values bytea[]     NOT NULL DEFAULT '{}',
    created_at    timestamptz NOT NULL DEFAULT now()
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_limit = 2000);

-- How far the relay is: everything that `published` sees is on Kafka; `window_end` is the window in hand and
-- `window_position` the last id of it that the broker acknowledged.
CREATE TABLE sekali.outbox_cursor (
    only_row        boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    published       pg_snapshot NOT NULL DEFAULT '1:1:',
    window_end      pg_snapshot,
    window_position bigint      NOT NULL DEFAULT 0,
    moved_at        timestamptz NOT NULL DEFAULT now()
);
INSERT INTO sekali.outbox_cursor DEFAULT VALUES;

-- Records to publish later: the relay moves them into the outbox when they are due.
CREATE TABLE sekali.outbox_later (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    due_at        timestamptz NOT NULL,
    topic         text        NOT NULL,
    key           bytea,
    payload       bytea,
    header_names  text[]      NOT NULL DEFAULT '{}',
    header_values bytea[]     NOT NULL DEFAULT '{}',
    created_at    timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX outbox_later_due ON sekali.outbox_later (due_at, id);

-- Rises with every lease and lock that is taken.
CREATE SEQUENCE sekali.fence;

-- Named locks, among them the relay's leadership.
CREATE TABLE sekali.lock (
    name        text        PRIMARY KEY,
    owner       uuid        NOT NULL,
    fence       bigint      NOT NULL,
    until       timestamptz NOT NULL,
    acquired_at timestamptz NOT NULL DEFAULT now()
);

-- A consumer's name becomes two bytes.
CREATE TABLE sekali.consumer (
    id   smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE
);

-- Queryable twin of the dead-letter topics.
CREATE TABLE sekali.dead_letter (
    id               uuid        PRIMARY KEY,
    consumer_id      smallint    NOT NULL,
    key              uuid        NOT NULL,
    key_text         text,
    state            text        NOT NULL DEFAULT 'open'
                     CHECK (state IN ('open', 'replaying', 'resolved', 'discarded')),
    reason           text        NOT NULL,
    class            text        NOT NULL,
    code             text        NOT NULL,
    message          text        NOT NULL,
    attempts         smallint    NOT NULL,
    origin_topic     text        NOT NULL,
    origin_partition integer     NOT NULL,
    origin_offset    bigint      NOT NULL,
    origin_timestamp timestamptz,
    resource_key     bytea,
    payload          bytea,
    header_names     text[]      NOT NULL,
    header_values    bytea[]     NOT NULL,
    group_fingerprint bigint     NOT NULL,
    first_failed_at  timestamptz NOT NULL,
    last_failed_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX dead_letter_open ON sekali.dead_letter (consumer_id, last_failed_at) WHERE state = 'open';
CREATE INDEX dead_letter_of_key ON sekali.dead_letter (consumer_id, key);

-- The value of a header, the last one of that name; null where it is missing or no text.
CREATE FUNCTION sekali.header_text(header_names text[], header_values bytea[], wanted text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    found bytea;
BEGIN
    SELECT value INTO found FROM unnest(header_names, header_values) WITH ORDINALITY AS header (name, value, nr)
        WHERE name = wanted ORDER BY nr DESC LIMIT 1;
    RETURN convert_from(found, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
    RETURN NULL;
END $$;

-- The outbox with the columns that Debezium's outbox event router expects by default.
CREATE VIEW sekali.outbox_debezium AS
    SELECT coalesce(sekali.header_text(header_names, header_values, 'id'),
                    sekali.header_text(header_names, header_values, 'idempotency-key'), 'outbox ' || id) AS id,
           topic AS aggregatetype,
           key AS aggregateid,
           sekali.header_text(header_names, header_values, 'ce_type') AS type,
           payload,
           created_at AS "timestamp",
           sekali.header_text(header_names, header_values, 'traceparent') AS traceparent
    FROM sekali.outbox;
