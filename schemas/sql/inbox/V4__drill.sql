-- Crash drills: what `sekali drill` saw, the last word on whether nothing is lost or doubled in this deployment.
CREATE TABLE sekali.drill (
    id          uuid        PRIMARY KEY,
    consumer_id smallint    NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    ended_at    timestamptz,
    who         text        NOT NULL,
    topic       text        NOT NULL,
    events      integer     NOT NULL,
    kills       integer     NOT NULL DEFAULT 0,
    decided     integer     NOT NULL DEFAULT 0,
    outcome     text        NOT NULL DEFAULT 'running' CHECK (outcome IN ('running', 'passed', 'failed')),
    finding     text        NOT NULL DEFAULT ''
);
