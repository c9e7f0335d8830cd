-- Rules that the database enforces, whatever the code does.
--
-- - A transfer stores the number of its entries. They are added in its own transaction and book, and
--   sum to zero at COMMIT. By then all of them exist, so any later entry is refused, also after the
--   database was restored from a backup.
-- - Triggers on entries update balances; the application's role may not write them.
-- - Triggers on budgets update the limits of accounts.
-- - A settled hour accepts no more usage lines.
--
-- Functions that count or check rows run as the owner, because they must see all rows.

CREATE FUNCTION billing_check_entries() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE entries bigint;
BEGIN
    SELECT count(*) INTO entries FROM billing_entry WHERE transfer_id = NEW.id;
    IF entries < 2 OR entries <> NEW.entry_count THEN
        RAISE EXCEPTION 'transfer % has % entries, but states %',
            NEW.id, entries, NEW.entry_count
            USING ERRCODE = 'check_violation', CONSTRAINT = 'transfer_has_entries';
    END IF;
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER billing_transfer_entries AFTER INSERT ON billing_transfer
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION billing_check_entries();

CREATE FUNCTION billing_admit_entries() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF EXISTS (
        SELECT FROM (SELECT DISTINCT transfer_id FROM added) a
        LEFT JOIN billing_transfer t ON t.id = a.transfer_id
        WHERE t.id IS NULL OR t.entry_count < (
            SELECT count(*) FROM billing_entry e WHERE e.transfer_id = a.transfer_id
        )
    ) THEN
        RAISE EXCEPTION 'entries are added only in the transaction that created their transfer,'
            ' and only as many as it states'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'entry_with_its_transfer';
    END IF;
    IF EXISTS (
        SELECT FROM added
        JOIN billing_transfer t ON t.id = added.transfer_id
        JOIN billing_account a ON a.id = added.account_id
        WHERE a.book_id <> t.book_id
    ) THEN
        RAISE EXCEPTION 'a transfer moves credits within one book'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'entry_in_the_transfers_book';
    END IF;
    RETURN NULL;
END
$$;
-- Triggers with transition tables cannot be deferred: this one runs at the end of the statement.
CREATE TRIGGER billing_entry_admit AFTER INSERT ON billing_entry
    REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION billing_admit_entries();

CREATE FUNCTION billing_check_still_balanced() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF (SELECT sum(amount) FROM billing_entry WHERE transfer_id = NEW.transfer_id) <> 0 THEN
        RAISE EXCEPTION 'transfer % does not sum to zero', NEW.transfer_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'transfer_balanced';
    END IF;
    RETURN NULL;
END
$$;
-- For every entry, because `SET CONSTRAINTS ... IMMEDIATE` may check the first ones early.
CREATE CONSTRAINT TRIGGER billing_entry_balanced AFTER INSERT ON billing_entry
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION billing_check_still_balanced();

REVOKE EXECUTE ON FUNCTION billing_check_entries(), billing_admit_entries(),
    billing_check_still_balanced() FROM PUBLIC;

-- The application's role has no right to write a balance. Triggers run in the order of their names:
-- this one after billing_entry_admit.
CREATE FUNCTION billing_move_balances() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_RELID <> 'public.billing_entry'::regclass THEN
        RAISE EXCEPTION 'only entries change balances' USING ERRCODE = 'restrict_violation';
    END IF;
    UPDATE billing_account a SET balance = a.balance + moved.amount
    FROM (SELECT account_id, sum(amount) AS amount FROM added GROUP BY account_id) moved
    WHERE a.id = moved.account_id AND moved.amount <> 0;
    RETURN NULL;
END
$$;
-- Otherwise anyone could use it as a trigger of their own table, and move balances as the owner.
REVOKE EXECUTE ON FUNCTION billing_move_balances() FROM PUBLIC;
CREATE TRIGGER billing_entry_move AFTER INSERT ON billing_entry
    REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION billing_move_balances();

CREATE FUNCTION billing_open_at_zero() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.balance <> 0 OR NEW.overrun <> 0 THEN
        RAISE EXCEPTION 'an account opens with a balance of 0'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'account_opens_at_zero';
    END IF;
    NEW.credit_limit := (
        SELECT budget.credit_limit FROM tenants_budget budget
        JOIN billing_book b ON b.slug = budget.book
        WHERE b.id = NEW.book_id AND budget.tenant_id = NEW.tenant_id
    );
    RETURN NEW;
END
$$;
REVOKE EXECUTE ON FUNCTION billing_open_at_zero() FROM PUBLIC;
CREATE TRIGGER billing_account_open BEFORE INSERT ON billing_account
    FOR EACH ROW EXECUTE FUNCTION billing_open_at_zero();

-- The application's role may not write an account's limit.
CREATE FUNCTION billing_copy_limit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_RELID <> 'public.tenants_budget'::regclass THEN
        RAISE EXCEPTION 'only budgets change limits' USING ERRCODE = 'restrict_violation';
    END IF;
    UPDATE billing_account a
    SET credit_limit = NEW.credit_limit,
        overrun = greatest(0, -(a.balance + NEW.credit_limit))
    FROM billing_book b
    WHERE b.id = a.book_id AND b.slug = NEW.book AND a.tenant_id = NEW.tenant_id;
    RETURN NULL;
END
$$;
REVOKE EXECUTE ON FUNCTION billing_copy_limit() FROM PUBLIC;
CREATE TRIGGER billing_budget_opened AFTER INSERT ON tenants_budget
    FOR EACH ROW EXECUTE FUNCTION billing_copy_limit();
CREATE TRIGGER billing_budget_limit AFTER UPDATE OF credit_limit ON tenants_budget
    FOR EACH ROW WHEN (OLD.credit_limit IS DISTINCT FROM NEW.credit_limit)
    EXECUTE FUNCTION billing_copy_limit();

CREATE FUNCTION billing_check_open_hour() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM added JOIN billing_metercursor c ON c.pool_id = added.pool_id
        WHERE added.hour < c.settled_until
    ) THEN
        RAISE EXCEPTION 'the hour is settled; late usage belongs to the first open hour'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'usage_in_an_open_hour';
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER billing_usageline_open_hour AFTER INSERT ON billing_usageline
    REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION billing_check_open_hour();

ALTER TABLE billing_loggedtransfer ADD CONSTRAINT logged_transfer_salt_of_32_bytes
    CHECK (length(salt) = 32);
