CREATE TABLE shop_order (id text PRIMARY KEY, customer text NOT NULL, total_minor bigint NOT NULL);
