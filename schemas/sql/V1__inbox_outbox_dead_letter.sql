CREATE SCHEMA IF NOT EXISTS sekali;

-- Keeps the inbox narrow: a consumer's name becomes two bytes.
CREATE TABLE sekali.consumer (
    id   smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE
);

-- One row a decided message: states in sekali_schemas::inbox::State. Insert-only on the happy path, no payload, no
-- second b-tree. Columns are ordered so that a row has no padding but one.
CREATE TABLE sekali.inbox (
    key         uuid        NOT NULL,
    fingerprint bigint      NOT NULL,
    decided_at  timestamptz NOT NULL DEFAULT now(),
    consumer_id smallint    NOT NULL,
    state       smallint    NOT NULL,
    attempt     smallint    NOT NULL,
    result      jsonb,
    PRIMARY KEY (consumer_id, key)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02, fillfactor = 95);
CREATE INDEX inbox_decided_at ON sekali.inbox USING brin (decided_at);

-- Keys that wait behind their failed head, and what waits.
CREATE TABLE sekali.held_key (
    consumer_id  smallint    NOT NULL,
    topic        text        NOT NULL,
    resource_key bytea       NOT NULL,
    head         uuid        NOT NULL,
    ready        boolean     NOT NULL DEFAULT false,
    since        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer_id, topic, resource_key)
);
CREATE TABLE sekali.held_message (
    seq           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer_id   smallint    NOT NULL,
    topic         text        NOT NULL,
    resource_key  bytea       NOT NULL,
    key           uuid        NOT NULL,
    key_text      text        NOT NULL,
    "partition"   integer     NOT NULL,
    "offset"      bigint      NOT NULL,
    timestamp_ms  bigint,
    payload       bytea,
    header_names  text[]      NOT NULL,
    header_values bytea[]     NOT NULL,
    held_at       timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX held_message_of_key ON sekali.held_message (consumer_id, topic, resource_key, seq);

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

-- Effects in progress.
CREATE SEQUENCE sekali.fence;
CREATE TABLE sekali.lease (
    consumer_id smallint    NOT NULL,
    key         uuid        NOT NULL,
    owner       uuid        NOT NULL,
    fence       bigint      NOT NULL,
    until       timestamptz NOT NULL,
    PRIMARY KEY (consumer_id, key)
);

-- Named locks, among them the relay's leadership.
CREATE TABLE sekali.lock (
    name        text        PRIMARY KEY,
    owner       uuid        NOT NULL,
    fence       bigint      NOT NULL,
    until       timestamptz NOT NULL,
    acquired_at timestamptz NOT NULL DEFAULT now()
);

-- Next offset to read of each partition, with the moment up to which everything of it is committed: the group's own
-- clock. -infinity: nobody knows yet.
CREATE TABLE sekali.progress (
    consumer_id  smallint    NOT NULL,
    topic        text        NOT NULL,
    "partition"  integer     NOT NULL,
    position     bigint      NOT NULL,
    committed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer_id, topic, "partition")
);

-- Append-only: who did what to which message, and why.
CREATE TABLE sekali.audit (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT now(),
    who         text        NOT NULL,
    action      text        NOT NULL,
    reason      text        NOT NULL,
    selection   jsonb       NOT NULL DEFAULT '{}',
    consumer_id smallint,
    key         uuid,
    outcome     text        NOT NULL
);
