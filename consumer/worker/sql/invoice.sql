-- Two workers may start at once, and IF NOT EXISTS alone does not settle who creates a table.
SELECT pg_advisory_xact_lock(hashtext('sekali-worker: create tables'));
SET LOCAL client_min_messages = warning;

-- One invoice an order. References follow from a sequence, so that two never collide; a transaction that rolls back leaves
-- a gap. Where gaps are not allowed, number invoices in a step of its own, one at a time.
CREATE TABLE IF NOT EXISTS public.invoice (
    number      bigint      GENERATED ALWAYS AS IDENTITY,
    reference   text        GENERATED ALWAYS AS
                            ('INV-' || lpad(number::text, greatest(8, length(number::text)), '0')) STORED PRIMARY KEY,
    order_id    text        NOT NULL UNIQUE,
    total_minor bigint      NOT NULL CHECK (0 <= total_minor),
    currency    text        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now()
);
