-- Makes the ledger refuse the rows of some events, the first times or always. A sequence counts the refusals, because it
-- is what no rollback takes back.
DROP SCHEMA IF EXISTS fault CASCADE;
CREATE SCHEMA fault;
CREATE TABLE fault.event (key uuid PRIMARY KEY, counter text NOT NULL, strikes bigint NOT NULL);
CREATE FUNCTION fault.strike() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    asked fault.event;
BEGIN
    SELECT * INTO asked FROM fault.event WHERE key = NEW.key;
    IF FOUND AND nextval(asked.counter) <= asked.strikes THEN
        RAISE EXCEPTION 'the check asked for this failure';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER fault_strike BEFORE INSERT ON public.stock_movement FOR EACH ROW EXECUTE FUNCTION fault.strike();
