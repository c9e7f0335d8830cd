"""The trigger function that makes tables append-only, for all apps."""

from django.db import migrations

REFUSE_CHANGE = """
CREATE OR REPLACE FUNCTION evenshare_refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% on % is refused: the table is append-only', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation',
              HINT = 'Correct by adding a new row.';
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0002_quota")]

    operations = [
        migrations.RunSQL(REFUSE_CHANGE, "DROP FUNCTION evenshare_refuse_change()"),
    ]
