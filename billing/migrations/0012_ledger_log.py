"""Which transfers are in the log of their book: append-only, sealed, of the transfer's tenants."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.bounds import bound_columns
from tenants.row_security import secure_rows

TABLE = "billing_loggedtransfer"
GUARDS = f"""
ALTER TABLE {TABLE} ADD CONSTRAINT logged_transfer_salt_of_32_bytes CHECK (length(salt) = 32);
SELECT evenshare_seal_table('{TABLE}');
CREATE TRIGGER {TABLE}_append_only BEFORE UPDATE OR DELETE ON {TABLE}
    FOR EACH ROW EXECUTE FUNCTION evenshare_refuse_change();
CREATE TRIGGER {TABLE}_no_truncate BEFORE TRUNCATE ON {TABLE}
    FOR EACH STATEMENT EXECUTE FUNCTION evenshare_refuse_change();
"""
DROP_GUARDS = f"""
DROP TRIGGER {TABLE}_append_only ON {TABLE};
DROP TRIGGER {TABLE}_no_truncate ON {TABLE};
SELECT evenshare_unseal_table('{TABLE}');
ALTER TABLE {TABLE} DROP CONSTRAINT logged_transfer_salt_of_32_bytes;
"""
OF_TRANSFER = "EXISTS (SELECT FROM billing_transfer t WHERE t.id = transfer_id)"


def revoke_change(apps, schema_editor):  # type: ignore[no-untyped-def]  # Django's signature
    """Take UPDATE, DELETE and TRUNCATE from the application role, where it is not the owner."""
    role = getattr(settings, "APP_DB_ROLE", "")
    if not role:
        return
    quoted = schema_editor.quote_name(role)
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_user = %s", [role])
        if cursor.fetchone()[0]:
            return
        cursor.execute(f"REVOKE UPDATE, DELETE, TRUNCATE ON {TABLE} FROM {quoted}")


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0011_corrections_are_spent"),
        ("tenants", "0012_transparency"),
    ]

    operations = [
        migrations.CreateModel(
            name="LoggedTransfer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.BigIntegerField()),
                ("salt", models.BinaryField()),
                ("book", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.book")),
                ("transfer", models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name="logged", to="billing.transfer")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("book", "number"), name="logged_transfer_once"),
                    models.CheckConstraint(condition=models.Q(("number__gte", 0)), name="logged_transfer_from_0"),
                ],
            },
        ),
        migrations.AddIndex(
            model_name="transfer",
            index=models.Index(fields=["book", "posted_at"], name="transfer_by_posting"),
        ),
        migrations.RunSQL(GUARDS, DROP_GUARDS),
        migrations.RunPython(revoke_change, migrations.RunPython.noop),
        secure_rows({TABLE: OF_TRANSFER}),
        bound_columns("billing"),
    ]
