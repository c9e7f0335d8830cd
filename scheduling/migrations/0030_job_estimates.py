"""Averages as estimates of jobs use them, and what earlier runs took (docs/adr/0192)."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.bounds import bound_columns
from tenants.row_security import OF_TENANT, secure_rows

USED = """
UPDATE scheduling_measurement
SET used_reports = reports, used_mean = mean, used_deviation = deviation;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('scheduling', '0029_job_answers'),
        ('tenants', '0011_budget_periods'),
    ]

    operations = [
        migrations.AddField(
            model_name='measurement',
            name='used_deviation',
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='measurement',
            name='used_mean',
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='measurement',
            name='used_reports',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.CreateModel(
            name='RunRecord',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('gpus', models.PositiveIntegerField()),
                ('runs', models.JSONField(default=list)),
                ('ended_at', models.DateTimeField()),
                ('profile', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='run_records', to='scheduling.profile')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('profile', 'gpus'), name='run_record_once_per_size')],
            },
        ),
        secure_rows({'scheduling_runrecord': OF_TENANT}),
        bound_columns('scheduling'),
        migrations.RunSQL(USED, migrations.RunSQL.noop),
    ]
