-- What a consumer needs beside the outbox: decisions, holds, leases, progress, audit.

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

-- Effects in progress.
CREATE TABLE sekali.lease (
    consumer_id smallint    NOT NULL,
    key         uuid        NOT NULL,
    owner       uuid        NOT NULL,
    fence       bigint      NOT NULL,
    until       timestamptz NOT NULL,
    PRIMARY KEY (consumer_id, key)
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
