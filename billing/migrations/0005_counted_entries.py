"""A transfer says how many entries it has; from then on it takes no other. History is sealed.

That entries join only in the transaction that made their transfer rested on its number. These
begin again in a new cluster: after a restore, the number of an old transfer comes a second time.
A count comes once. It is complete at COMMIT, so that later entries are too many, whenever they
come and wherever the database was restored to.

What counts and looks runs as the owner: it must see all rows, whoever adds one.
"""

from django.db import migrations, models

SEALED = (
    "billing_transfer",
    "billing_entry",
    "billing_postedprice",
    "billing_usageline",
    "billing_usageshare",
)

FILL = """
ALTER TABLE billing_transfer DISABLE TRIGGER USER;
UPDATE billing_transfer t
SET entry_count = (SELECT count(*) FROM billing_entry e WHERE e.transfer_id = t.id);
ALTER TABLE billing_transfer ENABLE TRIGGER USER;
"""

COUNT = """
DROP TRIGGER billing_transfer_stamp ON billing_transfer;
DROP FUNCTION billing_stamp_transfer();

CREATE OR REPLACE FUNCTION billing_check_entries() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE entries bigint;
BEGIN
    SELECT count(*) INTO entries FROM billing_entry WHERE transfer_id = NEW.id;
    IF entries < 2 OR entries <> NEW.entry_count THEN
        RAISE EXCEPTION 'transfer % has % entries, of % that it says',
            NEW.id, entries, NEW.entry_count
            USING ERRCODE = 'check_violation', CONSTRAINT = 'transfer_has_entries';
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION billing_admit_entries() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF EXISTS (
        SELECT FROM (SELECT DISTINCT transfer_id FROM added) a
        LEFT JOIN billing_transfer t ON t.id = a.transfer_id
        WHERE t.id IS NULL OR t.entry_count < (
            SELECT count(*) FROM billing_entry e WHERE e.transfer_id = a.transfer_id
        )
    ) THEN
        RAISE EXCEPTION 'entries join only in the transaction that made their transfer,'
            ' and no more of them than it says'
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

CREATE OR REPLACE FUNCTION billing_check_still_balanced() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF (SELECT sum(amount) FROM billing_entry WHERE transfer_id = NEW.transfer_id) <> 0 THEN
        RAISE EXCEPTION 'transfer % does not sum to zero', NEW.transfer_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'transfer_balanced';
    END IF;
    RETURN NULL;
END
$$;
REVOKE EXECUTE ON FUNCTION billing_check_entries(), billing_admit_entries(),
    billing_check_still_balanced() FROM PUBLIC;
"""

SEAL = "".join(f"SELECT evenshare_seal_table('{table}');" for table in SEALED)
UNSEAL = "".join(f"SELECT evenshare_unseal_table('{table}');" for table in SEALED)


class Migration(migrations.Migration):
    dependencies = [("billing", "0004_reserved_rounds_up"), ("tenants", "0006_seals")]

    operations = [
        migrations.AddField("transfer", "entry_count", models.PositiveIntegerField(default=0)),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.RunSQL(COUNT, migrations.RunSQL.noop),
        migrations.AlterField("transfer", "entry_count", models.PositiveIntegerField()),
        migrations.AddConstraint(
            "transfer",
            models.CheckConstraint(
                condition=models.Q(entry_count__gte=2), name="transfer_of_two_entries_or_more"
            ),
        ),
        migrations.RemoveField("transfer", "xact"),
        migrations.RunSQL(SEAL, UNSEAL),
    ]
