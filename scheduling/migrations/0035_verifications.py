"""What people's clients said that they verified, append-only (docs/adr/0220-not-proven-is-a-result.md)."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

from tenants.bounds import bound_columns
from tenants.row_security import OF_TENANT, secure_rows

TABLE = "scheduling_verification"
PROTECT = f"""
CREATE TRIGGER {TABLE}_append_only BEFORE UPDATE OR DELETE ON {TABLE}
    FOR EACH ROW EXECUTE FUNCTION evenshare_refuse_change();
CREATE TRIGGER {TABLE}_no_truncate BEFORE TRUNCATE ON {TABLE}
    FOR EACH STATEMENT EXECUTE FUNCTION evenshare_refuse_change();
"""
UNPROTECT = f"""
DROP TRIGGER {TABLE}_append_only ON {TABLE};
DROP TRIGGER {TABLE}_no_truncate ON {TABLE};
"""
SEAL, UNSEAL = (f"SELECT evenshare_{verb}_table('{TABLE}')" for verb in ("seal", "unseal"))


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

    dependencies = [
        ('scheduling', '0034_round_states'),
        ('tenants', '0012_transparency'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Verification',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('uid', models.UUIDField(unique=True)),
                ('said_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('kind', models.CharField(choices=[('rounds', 'Rounds'), ('statement', 'Statement')], max_length=15)),
                ('size', models.BigIntegerField()),
                ('root', models.CharField(max_length=64)),
                ('first', models.BigIntegerField(null=True)),
                ('last', models.BigIntegerField(null=True)),
                ('since', models.DateTimeField(null=True)),
                ('until', models.DateTimeField(null=True)),
                ('checked', models.PositiveIntegerField()),
                ('findings', models.PositiveIntegerField()),
                ('client', models.CharField(max_length=40)),
                ('pool', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='scheduling.pool')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.tenant')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'indexes': [models.Index(fields=['pool', 'tenant', 'kind', '-id'], name='verification_newest'), models.Index(fields=['user', 'pool', 'kind', '-id'], name='verification_of_person')],
                'constraints': [models.CheckConstraint(condition=models.Q(('size__gte', 1)), name='verification_of_a_head_with_records'), models.CheckConstraint(condition=models.Q(models.Q(('first__gte', 1), ('kind', 'rounds'), ('last__gte', models.F('first')), ('since', None), ('until', None)), models.Q(('first', None), ('kind', 'statement'), ('last', None), ('until__gt', models.F('since'))), _connector='OR'), name='verification_of_rounds_or_a_statement')],
            },
        ),
        secure_rows({TABLE: OF_TENANT}),
        bound_columns("scheduling"),
        migrations.RunSQL(PROTECT, UNPROTECT),
        migrations.RunPython(revoke_change, migrations.RunPython.noop),
        migrations.RunSQL(SEAL, UNSEAL),
    ]
