-- Hands the outbox to Debezium instead of the relay. For databases where Kafka Connect reads `sekali.outbox_event` with the
-- outbox event router, and no relay runs (relay.embedded = false, no `sekali relay`). See the README for the connector.
--
-- Each record goes through the table and out again in the transaction that enqueues it: Debezium reads the log, not the
-- table, and nothing has to be cleaned up. `sekali.outbox` itself stays empty.
CREATE TABLE sekali.outbox_event (
    id            text        NOT NULL,
    aggregatetype text        NOT NULL,
    aggregateid   bytea,
    type          text,
    payload       bytea,
    "timestamp"   timestamptz NOT NULL,
    traceparent   text
);

CREATE FUNCTION sekali.outbox_to_debezium() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO sekali.outbox_event VALUES (
        coalesce(sekali.header_text(NEW.header_names, NEW.header_values, 'id'),
                 sekali.header_text(NEW.header_names, NEW.header_values, 'idempotency-key'), 'outbox ' || NEW.id),
        NEW.topic, NEW.key, sekali.header_text(NEW.header_names, NEW.header_values, 'ce_type'), NEW.payload, NEW.created_at,
        sekali.header_text(NEW.header_names, NEW.header_values, 'traceparent'));
    DELETE FROM sekali.outbox_event;
    RETURN NULL;
END $$;

CREATE TRIGGER to_debezium BEFORE INSERT ON sekali.outbox FOR EACH ROW EXECUTE FUNCTION sekali.outbox_to_debezium();
