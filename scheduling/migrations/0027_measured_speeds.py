"""Measurements of job types. What they have counts as declared; published speeds are the truth
of the virtual executor from here on, which ran by them (docs/adr/0183)."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.bounds import bound_columns
from tenants.row_security import OF_LEASE, OF_TENANT, secure_rows

# An iteration of them is a second of work on the slowest type: their papers give ratios alone.
KEEP = """
UPDATE scheduling_profile SET declared = speedups;
INSERT INTO scheduling_virtualspeeds (profile_id, tenant_id, speedups, iteration_us)
SELECT id, tenant_id, speedups, 1000000 FROM scheduling_profile WHERE source = 'published';
"""


class Migration(migrations.Migration):

    dependencies = [
        ('scheduling', '0026_quota_events'),
        ('tenants', '0011_budget_periods'),
    ]

    operations = [
        migrations.CreateModel(
            name='IterationReading',
            fields=[
                ('lease', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='reading', serialize=False, to='scheduling.lease')),
                ('iterations', models.PositiveBigIntegerField(default=0)),
                ('time_us', models.PositiveBigIntegerField(default=0)),
                ('is_resumed', models.BooleanField(default=False)),
                ('is_suspended', models.BooleanField(default=False)),
                ('is_refused', models.BooleanField(default=False)),
            ],
        ),
        migrations.AddField(
            model_name='profile',
            name='declared',
            field=models.JSONField(blank=True, db_default={}, default=dict),
        ),
        migrations.AddField(
            model_name='profile',
            name='measured',
            field=models.JSONField(blank=True, db_default={}, default=dict),
        ),
        migrations.AddField(
            model_name='virtualwork',
            name='iteration_us',
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
        migrations.CreateModel(
            name='VirtualSpeeds',
            fields=[
                ('profile', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='virtual_speeds', serialize=False, to='scheduling.profile')),
                ('speedups', models.JSONField()),
                ('iteration_us', models.PositiveBigIntegerField()),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.tenant')),
            ],
        ),
        migrations.CreateModel(
            name='Measurement',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('iteration', 'time per iteration'), ('resume', 'time to resume'), ('suspend', 'time to suspend')], max_length=16)),
                ('gpu_type', models.SlugField(blank=True, default='', max_length=31)),
                ('gpus', models.PositiveIntegerField(default=0)),
                ('several_nodes', models.BooleanField(default=False)),
                ('reports', models.PositiveIntegerField(default=0)),
                ('iterations', models.PositiveBigIntegerField(default=0)),
                ('mean', models.PositiveBigIntegerField(default=0)),
                ('deviation', models.PositiveBigIntegerField(default=0)),
                ('up_milli', models.PositiveIntegerField(default=0)),
                ('down_milli', models.PositiveIntegerField(default=0)),
                ('memory_bytes', models.PositiveBigIntegerField(default=0)),
                ('restarts', models.PositiveIntegerField(default=0)),
                ('seen_at', models.DateTimeField()),
                ('profile', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='measurements', to='scheduling.profile')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('profile', 'kind', 'gpu_type', 'gpus', 'several_nodes'), name='measurement_once_per_shape')],
            },
        ),
        migrations.CreateModel(
            name='MeasurementNote',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('kind', models.CharField(choices=[('changed', 'an average started anew: what is reported has changed'), ('refused', 'a report could not be used'), ('used', 'the speeds that policies use have changed')], max_length=16)),
                ('data', models.JSONField(default=dict)),
                ('job', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='scheduling.job')),
                ('profile', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notes', to='scheduling.profile')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.tenant')),
            ],
            options={
                'indexes': [models.Index(fields=['profile', '-id'], name='note_by_profile')],
            },
        ),
        secure_rows(
            {
                'scheduling_iterationreading': OF_LEASE,
                'scheduling_virtualspeeds': OF_TENANT,
                'scheduling_measurement': OF_TENANT,
                'scheduling_measurementnote': OF_TENANT,
            }
        ),
        bound_columns('scheduling'),
        # Last: rows whose keys are checked at the end keep their table from being altered.
        migrations.RunSQL(KEEP, migrations.RunSQL.noop),
    ]
