CREATE TABLE shelf (sku text PRIMARY KEY, quantity bigint NOT NULL CHECK (quantity >= 0));
