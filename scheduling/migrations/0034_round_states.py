"""What a round leaves for the next one is history: a row of each round, in partitions by day.

Until now it was one row of a pool, which the application's role might change: sums, memory and
posted prices (docs/adr/0198-sums-are-history.md). Rounds tell the hash of what they leave; those of
before have none. The table of rounds is sealed again, for a seal is over all columns.
"""

import zlib

from django.conf import settings
from django.db import migrations, models

from tenants.bounds import bound_columns

TABLE = "scheduling_roundstate"
STATES = """
CREATE TABLE scheduling_roundstate (
    day date NOT NULL,
    pool_id bigint NOT NULL,
    number bigint NOT NULL,
    at timestamptz NOT NULL,
    policy varchar(31) NOT NULL,
    policy_version varchar(31) NOT NULL,
    service bytea STORAGE EXTERNAL NOT NULL,
    memory bytea STORAGE EXTERNAL NOT NULL,
    prices jsonb NOT NULL,
    entitled jsonb NOT NULL,
    -- The last day comes last: a round's state is looked for without knowing it.
    PRIMARY KEY (pool_id, number, day)
) PARTITION BY RANGE (day);

CREATE TABLE scheduling_roundstate_rest PARTITION OF scheduling_roundstate DEFAULT;

-- A trigger for each row of the whole is one of each part, of those to come too.
CREATE TRIGGER scheduling_roundstate_append_only BEFORE UPDATE OR DELETE ON scheduling_roundstate
    FOR EACH ROW EXECUTE FUNCTION evenshare_refuse_change();
CREATE TRIGGER scheduling_roundstate_no_truncate BEFORE TRUNCATE ON scheduling_roundstate
    FOR EACH STATEMENT EXECUTE FUNCTION evenshare_refuse_change();
SELECT evenshare_guard_blob_day('scheduling_roundstate_rest'::regclass);

CREATE FUNCTION evenshare_make_state_day(wanted date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE name text := 'scheduling_roundstate_' || to_char(wanted, 'YYYYMMDD');
BEGIN
    IF to_regclass(name) IS NULL
       AND NOT EXISTS (SELECT FROM scheduling_roundstate_rest WHERE day = wanted) THEN
        EXECUTE format(
            'CREATE TABLE %I PARTITION OF scheduling_roundstate FOR VALUES FROM (%L) TO (%L)',
            name, wanted, wanted + 1);
        PERFORM evenshare_guard_blob_day(to_regclass(name));
    END IF;
END
$$;

-- Drops whole days older than `keep_days`, at least 7 of which stay. Returns how many. The state
-- of each pool's newest round stays whatever its day: the next round begins with it.
CREATE FUNCTION evenshare_drop_state_days(keep_days integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE part record; dropped integer := 0;
BEGIN
    FOR part IN
        SELECT child.relname FROM pg_inherits
        JOIN pg_class child ON child.oid = inhrelid
        WHERE inhparent = 'scheduling_roundstate'::regclass
          AND child.relname ~ '^scheduling_roundstate_[0-9]{8}$'
          AND to_date(right(child.relname, 8), 'YYYYMMDD')
              < current_date - greatest(keep_days, 7)
        ORDER BY child.relname
    LOOP
        EXECUTE format('ALTER TABLE scheduling_roundstate DETACH PARTITION %I', part.relname);
        EXECUTE format(
            'INSERT INTO scheduling_roundstate SELECT old.* FROM %1$I old WHERE old.number >= ('
            ' SELECT max(number) FROM %1$I WHERE pool_id = old.pool_id) AND NOT EXISTS ('
            ' SELECT FROM scheduling_roundstate s'
            ' WHERE s.pool_id = old.pool_id AND s.number > old.number)', part.relname);
        EXECUTE format('DROP TABLE %I', part.relname);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END
$$;
"""
DROP_STATES = """
DROP FUNCTION evenshare_drop_state_days(integer);
DROP FUNCTION evenshare_make_state_day(date);
DROP TABLE scheduling_roundstate;
"""
SEAL = "SELECT evenshare_seal_table('scheduling_round')"


def keep_as_history(apps, schema_editor):  # type: ignore[no-untyped-def]  # Django's signature
    """Make a row of what each pool carries now."""
    owner = schema_editor.connection.alias  # whom row security does not hold
    states = apps.get_model("scheduling", "PoolState").objects.using(owner)
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT evenshare_make_state_day(current_date)")
        for state in states.order_by("pool_id"):
            cursor.execute(
                "INSERT INTO scheduling_roundstate SELECT current_date, pool_id, round, at, policy,"
                " policy_version, %s, %s, prices, entitled FROM scheduling_poolstate"
                " WHERE pool_id = %s",
                [
                    zlib.compress(bytes(state.service), 1),
                    zlib.compress(bytes(state.memory), 1),
                    state.pool_id,
                ],
            )


def carry_again(apps, schema_editor):  # type: ignore[no-untyped-def]  # Django's signature
    """Give each pool the state of its newest round, to be changed by the next one."""
    owner = schema_editor.connection.alias
    states = apps.get_model("scheduling", "PoolState").objects.using(owner)
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT ON (pool_id) pool_id, number, at, policy, policy_version, service,"
            " memory, prices::text, entitled::text FROM scheduling_roundstate"
            " ORDER BY pool_id, number DESC"
        )
        for pool_id, number, at, policy, version, service, memory, prices, entitled in cursor:
            states.create(
                pool_id=pool_id, round=number, at=at, policy=policy, policy_version=version,
                service=zlib.decompress(bytes(service)), memory=zlib.decompress(bytes(memory)),
            )  # fmt: skip
            with schema_editor.connection.cursor() as update:
                update.execute(
                    "UPDATE scheduling_poolstate SET prices = %s, entitled = %s WHERE pool_id = %s",
                    [prices, entitled, pool_id],
                )


def revoke_change(apps, schema_editor):  # type: ignore[no-untyped-def]  # Django's signature
    """Take UPDATE, DELETE and TRUNCATE from the application role, where it is not the owner."""
    role = getattr(settings, "APP_DB_ROLE", "")
    if not role:
        return
    quoted = schema_editor.quote_name(role)
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_user = %s", [role])
        if not cursor.fetchone()[0]:
            cursor.execute(f"REVOKE UPDATE, DELETE, TRUNCATE ON {TABLE} FROM {quoted}")


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0033_round_bundles")]

    operations = [
        migrations.RunSQL(STATES, DROP_STATES),
        migrations.CreateModel(
            name="RoundState",
            fields=[
                ("day", models.DateField()),
                ("number", models.BigIntegerField()),
                ("at", models.DateTimeField()),
                ("policy", models.CharField(max_length=31)),
                ("policy_version", models.CharField(max_length=31)),
                ("service", models.BinaryField()),
                ("memory", models.BinaryField()),
                ("prices", models.JSONField()),
                ("entitled", models.JSONField()),
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "pool_id", "number", "day", blank=True, editable=False,
                        primary_key=True, serialize=False,
                    ),
                ),
            ],
            options={"db_table": "scheduling_roundstate", "managed": False},
        ),
        migrations.AddField(
            "round",
            "state_sha256",
            models.CharField(
                max_length=64, default="", help_text="Of what it leaves for the next round."
            ),
        ),
        migrations.AddField(
            "round",
            "state_note",
            models.CharField(
                max_length=255, default="", blank=True,
                help_text="Why it did not begin with the state that the round before left.",
            ),
        ),
        migrations.RunSQL(SEAL, SEAL),
        migrations.RunPython(keep_as_history, carry_again),
        migrations.DeleteModel("PoolState"),
        migrations.RunPython(revoke_change, migrations.RunPython.noop),
        bound_columns("scheduling"),
    ]
