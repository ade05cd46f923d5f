-- Dead letters as work: found by state and by cause, replayed and counted.

ALTER TABLE sekali.dead_letter
    -- The message without what varies from one failure to the next; null in rows of an older version.
    ADD COLUMN cause        text,
    ADD COLUMN replays      smallint NOT NULL DEFAULT 0,
    -- The last operation that changed its state.
    ADD COLUMN operation_id bigint,
    -- The dead letter that this one is an edited copy of.
    ADD COLUMN edited_from  uuid;

-- Counting a burst reads an index alone, as long as vacuum keeps up with it.
ALTER TABLE sekali.dead_letter SET (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX dead_letter_of_state ON sekali.dead_letter (consumer_id, state, id);
CREATE INDEX dead_letter_of_group ON sekali.dead_letter (consumer_id, state, group_fingerprint, id)
    INCLUDE (last_failed_at);
CREATE INDEX dead_letter_edited ON sekali.dead_letter (edited_from) WHERE edited_from IS NOT NULL;
