-- What an operator sees and does: attempts, routes, operations and their audit.

-- One row a failed attempt, for as long as the inbox remembers.
CREATE TABLE sekali.attempt (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer_id smallint    NOT NULL,
    key         uuid        NOT NULL,
    attempt     smallint    NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    class       text        NOT NULL,
    code        text        NOT NULL,
    cause       text        NOT NULL,
    worker      text        NOT NULL
);
CREATE INDEX attempt_of_key ON sekali.attempt (consumer_id, key, id);

-- Where a group reads what is replayed, as it said itself when it started last.
CREATE TABLE sekali.route (
    consumer_id   smallint    NOT NULL,
    topic         text        NOT NULL,
    group_name    text        NOT NULL,
    -- The shortest delay first; empty when the group retries nothing.
    retry_topics  text[]      NOT NULL,
    dlq_topic     text        NOT NULL,
    ordered       boolean     NOT NULL,
    registered_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer_id, topic)
);

-- What somebody asked for: the messages are pinned in operation_item when it begins.
CREATE TABLE sekali.operation (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind       text        NOT NULL CHECK (kind IN ('replay', 'discard', 'restore', 'edit')),
    state      text        NOT NULL CHECK (state IN ('running', 'stopped', 'done', 'cancelled')),
    who        text        NOT NULL,
    reason     text        NOT NULL,
    selection  jsonb       NOT NULL,
    rate       integer     NOT NULL,
    force      boolean     NOT NULL,
    items      integer     NOT NULL,
    begun_at   timestamptz NOT NULL DEFAULT now(),
    ended_at   timestamptz,
    -- The process that carries it out, and until when nobody else may.
    owner      uuid,
    until      timestamptz
);
CREATE TABLE sekali.operation_item (
    operation_id   bigint  NOT NULL,
    -- Place in the order of the log.
    nr             integer NOT NULL,
    dead_letter_id uuid    NOT NULL,
    -- Null until it was its turn.
    outcome        text,
    PRIMARY KEY (operation_id, nr)
);
CREATE INDEX operation_item_waiting ON sekali.operation_item (operation_id, nr) WHERE outcome IS NULL;

ALTER TABLE sekali.audit
    ADD COLUMN dead_letter_id uuid,
    ADD COLUMN operation_id   bigint;
CREATE INDEX audit_of_dead_letter ON sekali.audit (dead_letter_id, id) WHERE dead_letter_id IS NOT NULL;
CREATE INDEX audit_of_operation ON sekali.audit (operation_id, id) WHERE operation_id IS NOT NULL;

CREATE FUNCTION sekali.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'sekali.audit is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON sekali.audit
    FOR EACH STATEMENT EXECUTE FUNCTION sekali.refuse_change();
