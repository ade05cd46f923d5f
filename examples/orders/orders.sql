-- The service's own table, from its own migrations. `sekali migrate` makes the schema `sekali` beside it.
CREATE TABLE placed_order (id text NOT NULL, customer text NOT NULL, cents bigint NOT NULL);
