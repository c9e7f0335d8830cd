"""Profiling runs of job types (docs/adr/0193-profiling-runs.md)."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('scheduling', '0031_curves'),
    ]

    operations = [
        migrations.AddField(
            model_name='job',
            name='profiled_for',
            field=models.ForeignKey(blank=True, help_text='Of a profiling run: the job that waited; none: nobody waits for it any more.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='profiling_runs', to='scheduling.job'),
        ),
        migrations.AddField(
            model_name='job',
            name='profiling_s',
            field=models.PositiveIntegerField(db_default=0, default=0, help_text='Of a profiling run: after so many seconds of running it ends; 0: it is none.'),
        ),
        migrations.AddField(
            model_name='pool',
            name='profiling_s',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='profile',
            name='past_run',
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('profiled_for__isnull', True), ('profiling_s', 0)), models.Q(('gpus__lte', 2), ('job_class', 'best_effort'), ('profiling_s__gte', 1)), _connector='OR'), name='job_profiling_run_is_small'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.UniqueConstraint(condition=models.Q(('profiling_s__gt', 0), ('state__in', ('pending', 'running', 'stopping'))), fields=('profile',), name='job_one_profiling_run_of_a_type'),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(condition=models.Q(('profiling_s__gt', 0)), fields=['profile', '-id'], name='job_profiling_by_type'),
        ),
    ]
