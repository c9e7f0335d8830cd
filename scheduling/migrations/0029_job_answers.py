"""What rounds answered to jobs with deadlines, append-only (docs/adr/0224-a-dry-run-decides-the-next-round.md)."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.bounds import bound_columns
from tenants.row_security import OF_TENANT, secure_rows

TABLE = "scheduling_jobanswer"
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
        if cursor.fetchone()[0]:
            return
        cursor.execute(f"REVOKE UPDATE, DELETE, TRUNCATE ON {TABLE} FROM {quoted}")


class Migration(migrations.Migration):

    dependencies = [
        ('scheduling', '0028_job_deadlines'),
        ('tenants', '0011_budget_periods'),
    ]

    operations = [
        migrations.CreateModel(
            name='JobAnswer',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('round', models.BigIntegerField()),
                ('at', models.DateTimeField()),
                ('state', models.CharField(choices=[('planned', 'planned'), ('refused', 'refused'), ('missed', 'missed')], max_length=16)),
                ('by_at', models.DateTimeField(blank=True, null=True)),
                ('reward_micro', models.BigIntegerField()),
                ('gpu_type', models.CharField(blank=True, default='', max_length=31)),
                ('gpus', models.PositiveIntegerField()),
                ('one_node', models.BooleanField()),
                ('leases', models.JSONField()),
                ('chance_milli', models.PositiveIntegerField(blank=True, null=True)),
                ('limited_by', models.CharField(blank=True, choices=[('length', 'length'), ('quota', 'quota'), ('capacity', 'capacity'), ('size', 'size'), ('budget', 'budget')], default='', max_length=16)),
                ('blocked', models.JSONField()),
                ('earliest_at', models.DateTimeField(blank=True, null=True)),
                ('cause', models.CharField(blank=True, default='', max_length=255)),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='answers', to='scheduling.job')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('job', 'round'), name='job_answer_once_a_round')],
            },
        ),
        secure_rows({TABLE: OF_TENANT}),
        bound_columns("scheduling"),
        migrations.RunSQL(PROTECT, UNPROTECT),
        migrations.RunPython(revoke_change, migrations.RunPython.noop),
        migrations.RunSQL(SEAL, UNSEAL),
    ]
