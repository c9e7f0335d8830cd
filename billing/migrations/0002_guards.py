"""What the database holds by itself, whatever the code above it believes.

- Append-only tables refuse UPDATE, DELETE and TRUNCATE, for everyone.
- Entries join only in the transaction that made their transfer, only in its book, and sum to
  zero at COMMIT; every transfer has entries.
- Balances follow entries, by trigger; the application role may not write them.
- No usage line enters an hour that is settled.
"""

from django.conf import settings
from django.db import migrations

APPEND_ONLY = (
    "billing_transfer",
    "billing_entry",
    "billing_postedprice",
    "billing_usageline",
    "billing_usageshare",
)

TRANSFERS = """
CREATE FUNCTION billing_stamp_transfer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.xact := pg_current_xact_id()::text::bigint;
    RETURN NEW;
END
$$;
CREATE TRIGGER billing_transfer_stamp BEFORE INSERT ON billing_transfer
    FOR EACH ROW EXECUTE FUNCTION billing_stamp_transfer();

CREATE FUNCTION billing_check_entries() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE entries bigint;
BEGIN
    SELECT count(*) INTO entries FROM billing_entry WHERE transfer_id = NEW.id;
    IF entries < 2 THEN
        RAISE EXCEPTION 'transfer % has % entries', NEW.id, entries
            USING ERRCODE = 'check_violation', CONSTRAINT = 'transfer_has_entries';
    END IF;
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER billing_transfer_entries AFTER INSERT ON billing_transfer
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION billing_check_entries();
"""

DROP_TRANSFERS = """
DROP TRIGGER billing_transfer_entries ON billing_transfer;
DROP TRIGGER billing_transfer_stamp ON billing_transfer;
DROP FUNCTION billing_check_entries();
DROP FUNCTION billing_stamp_transfer();
"""

ENTRIES = """
CREATE FUNCTION billing_admit_entries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM added LEFT JOIN billing_transfer t ON t.id = added.transfer_id
        WHERE t.xact IS DISTINCT FROM pg_current_xact_id()::text::bigint
    ) THEN
        RAISE EXCEPTION 'entries join only in the transaction that made their transfer'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'entry_with_its_transfer';
    END IF;
    IF EXISTS (
        SELECT FROM added
        JOIN billing_transfer t ON t.id = added.transfer_id
        JOIN billing_account a ON a.id = added.account_id
        WHERE a.book_id <> t.book_id
    ) THEN
        RAISE EXCEPTION 'a transfer moves credits inside one book'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'entry_in_the_transfers_book';
    END IF;
    RETURN NULL;
END
$$;
-- Transition tables cannot be deferred; this holds at the end of the statement.
CREATE TRIGGER billing_entry_admit AFTER INSERT ON billing_entry
    REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION billing_admit_entries();

CREATE FUNCTION billing_check_still_balanced() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT sum(amount) FROM billing_entry WHERE transfer_id = NEW.transfer_id) <> 0 THEN
        RAISE EXCEPTION 'transfer % does not sum to zero', NEW.transfer_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'transfer_balanced';
    END IF;
    RETURN NULL;
END
$$;
-- At every entry, since `SET CONSTRAINTS ... IMMEDIATE` can have the first ones looked at early.
CREATE CONSTRAINT TRIGGER billing_entry_balanced AFTER INSERT ON billing_entry
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION billing_check_still_balanced();

-- Runs as the owner: the application role has no right to write a balance. The name comes
-- after billing_entry_admit, and triggers run by name.
CREATE FUNCTION billing_move_balances() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_RELID <> 'public.billing_entry'::regclass THEN
        RAISE EXCEPTION 'balances follow entries alone' USING ERRCODE = 'restrict_violation';
    END IF;
    UPDATE billing_account a SET balance = a.balance + moved.amount
    FROM (SELECT account_id, sum(amount) AS amount FROM added GROUP BY account_id) moved
    WHERE a.id = moved.account_id AND moved.amount <> 0;
    RETURN NULL;
END
$$;
-- Else anyone could hang it on a table of their own and move balances as the owner.
REVOKE EXECUTE ON FUNCTION billing_move_balances() FROM PUBLIC;
CREATE TRIGGER billing_entry_move AFTER INSERT ON billing_entry
    REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION billing_move_balances();

CREATE FUNCTION billing_open_at_zero() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.balance <> 0 OR NEW.overrun <> 0 THEN
        RAISE EXCEPTION 'an account opens with a balance of 0'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'account_opens_at_zero';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER billing_account_open BEFORE INSERT ON billing_account
    FOR EACH ROW EXECUTE FUNCTION billing_open_at_zero();
"""

DROP_ENTRIES = """
DROP TRIGGER billing_account_open ON billing_account;
DROP TRIGGER billing_entry_move ON billing_entry;
DROP TRIGGER billing_entry_balanced ON billing_entry;
DROP TRIGGER billing_entry_admit ON billing_entry;
DROP FUNCTION billing_open_at_zero();
DROP FUNCTION billing_move_balances();
DROP FUNCTION billing_check_still_balanced();
DROP FUNCTION billing_admit_entries();
"""

HOURS = """
CREATE FUNCTION billing_check_open_hour() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM added JOIN billing_metercursor c ON c.pool_id = added.pool_id
        WHERE added.hour < c.settled_until
    ) THEN
        RAISE EXCEPTION 'the hour is settled; late usage belongs to the first open one'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'usage_in_an_open_hour';
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER billing_usageline_open_hour AFTER INSERT ON billing_usageline
    REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION billing_check_open_hour();
"""

DROP_HOURS = """
DROP TRIGGER billing_usageline_open_hour ON billing_usageline;
DROP FUNCTION billing_check_open_hour();
"""


def _protect(table: str) -> str:
    return f"""
    CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table}
        FOR EACH ROW EXECUTE FUNCTION evenshare_refuse_change();
    CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table}
        FOR EACH STATEMENT EXECUTE FUNCTION evenshare_refuse_change();
    """


def _unprotect(table: str) -> str:
    return f"""
    DROP TRIGGER {table}_append_only ON {table};
    DROP TRIGGER {table}_no_truncate ON {table};
    """


def revoke_change(_apps, schema_editor):  # type: ignore[no-untyped-def]  # Django's signature
    """Take the rights that the application role does not need, where it is not the owner."""
    role = getattr(settings, "APP_DB_ROLE", "")
    if not role:
        return
    quoted = schema_editor.quote_name(role)
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_user = %s", [role])
        if cursor.fetchone()[0]:
            return
        for table in APPEND_ONLY:
            cursor.execute(f"REVOKE UPDATE, DELETE, TRUNCATE ON {table} FROM {quoted}")
        # A balance is written by the trigger on entries, which runs as the owner.
        cursor.execute(f"REVOKE UPDATE, DELETE, TRUNCATE ON billing_account FROM {quoted}")
        cursor.execute(f"GRANT UPDATE (credit_limit, overrun) ON billing_account TO {quoted}")


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_initial"), ("tenants", "0003_guards")]

    operations = [
        *(migrations.RunSQL(_protect(table), _unprotect(table)) for table in APPEND_ONLY),
        migrations.RunSQL(TRANSFERS, DROP_TRANSFERS),
        migrations.RunSQL(ENTRIES, DROP_ENTRIES),
        migrations.RunSQL(HOURS, DROP_HOURS),
        migrations.RunPython(revoke_change, migrations.RunPython.noop),
    ]
