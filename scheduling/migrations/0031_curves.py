"""What jobs report of their stopping metrics, and the curves that were fitted (docs/adr/0192)."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.bounds import bound_columns
from tenants.row_security import OF_TENANT, secure_rows


class Migration(migrations.Migration):

    dependencies = [
        ('scheduling', '0030_job_estimates'),
        ('tenants', '0011_budget_periods'),
    ]

    operations = [
        migrations.CreateModel(
            name='MetricHistory',
            fields=[
                ('job', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='metric_history', serialize=False, to='scheduling.job')),
                ('points', models.JSONField(default=list)),
                ('evaluations', models.PositiveIntegerField(default=0)),
                ('iteration', models.PositiveBigIntegerField(default=0)),
                ('is_met', models.BooleanField(default=False)),
                ('refused', models.CharField(blank=True, default='', max_length=200)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.tenant')),
            ],
        ),
        migrations.CreateModel(
            name='StopForecast',
            fields=[
                ('job', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='stop_forecast', serialize=False, to='scheduling.job')),
                ('iterations', models.PositiveBigIntegerField()),
                ('low', models.PositiveBigIntegerField()),
                ('high', models.PositiveBigIntegerField()),
                ('error_milli', models.PositiveIntegerField()),
                ('source', models.CharField(choices=[('measured', 'the target was met'), ('fitted', 'fitted curves'), ('cap', 'the most iterations')], max_length=16)),
                ('note', models.CharField(blank=True, default='', max_length=200)),
                ('evaluations', models.PositiveIntegerField()),
                ('iteration', models.PositiveBigIntegerField()),
                ('families', models.JSONField(default=dict)),
                ('fitted_at', models.DateTimeField()),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.tenant')),
            ],
        ),
        secure_rows({'scheduling_metrichistory': OF_TENANT, 'scheduling_stopforecast': OF_TENANT}),
        bound_columns('scheduling'),
    ]
