-- Two workers may start at once, and IF NOT EXISTS alone does not settle who creates a table.
SELECT pg_advisory_xact_lock(hashtext('sekali-worker: create tables'));
SET LOCAL client_min_messages = warning;

-- How much there is of each SKU. `version` counts the movements that were applied. Rows are updated all the time: free
-- space in the pages, and no index on what changes, keeps those updates inside their page.
CREATE TABLE IF NOT EXISTS public.stock (
    sku      text   PRIMARY KEY,
    quantity bigint NOT NULL,
    version  bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- Every movement that was applied, append-only. Deliberately without a primary key or a unique constraint on `key`: that
-- each key is here once is the inbox's doing, and a broken inbox must show here as a second row, not as an error.
CREATE TABLE IF NOT EXISTS public.stock_movement (
    key         uuid        NOT NULL,
    delta       bigint      NOT NULL,
    "offset"    bigint      NOT NULL,
    occurred_at timestamptz,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    "partition" integer     NOT NULL,
    sku         text        NOT NULL,
    topic       text        NOT NULL
);
