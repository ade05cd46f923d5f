-- What an operator has paused: a source topic of a group with its retry topics, or '*' for all of them. Every worker of
-- the group looks here every few seconds.
CREATE TABLE sekali.paused_topic (
    consumer_id smallint    NOT NULL,
    topic       text        NOT NULL,
    paused_at   timestamptz NOT NULL DEFAULT now(),
    who         text        NOT NULL,
    reason      text        NOT NULL,
    PRIMARY KEY (consumer_id, topic)
);
