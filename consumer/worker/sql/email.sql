-- Two workers may start at once, and IF NOT EXISTS alone does not settle who creates a table.
SELECT pg_advisory_xact_lock(hashtext('sekali-worker: create tables'));
SET LOCAL client_min_messages = warning;

-- What became of each mail; neither address nor text. `key` is the 128-bit form of email_type:user_id:period.
--   sent     a mail server has taken it. Written once, in the transaction that also decides the message.
--   sending  an attempt has begun, and nobody knows yet what came of it: it is in progress, or it was cut off.
--   failed   a mail server has refused the last attempt; another one may follow, see the inbox and the dead letters.
-- The last two are notes for people, written beside that transaction.
CREATE TABLE IF NOT EXISTS public.email_delivery (
    key        uuid        PRIMARY KEY,
    email_type text        NOT NULL,
    user_id    text        NOT NULL,
    period     text        NOT NULL,
    message_id text        NOT NULL,
    status     text        NOT NULL CHECK (status IN ('sending', 'sent', 'failed')),
    attempts   integer     NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);
