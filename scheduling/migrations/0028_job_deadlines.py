"""Deadlines and stopping criteria of jobs (docs/adr/0224-a-dry-run-decides-the-next-round.md)."""

from django.conf import settings
from django.db import migrations, models

from tenants.bounds import bound_columns


class Migration(migrations.Migration):

    dependencies = [
        ('scheduling', '0027_measured_speeds'),
        ('tenants', '0011_budget_periods'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='job',
            name='deadline_steps',
            field=models.JSONField(blank=True, help_text='Percent of the time from submission to the deadline, and points for an end by then; null: those of its class.', null=True),
        ),
        migrations.AddField(
            model_name='job',
            name='iterations',
            field=models.PositiveBigIntegerField(blank=True, help_text='How many it makes in all; the most, with a metric.', null=True),
        ),
        migrations.AddField(
            model_name='job',
            name='stop_metric',
            field=models.CharField(blank=True, db_default='', default='', max_length=63),
        ),
        migrations.AddField(
            model_name='job',
            name='stop_rule',
            field=models.CharField(blank=True, choices=[('at_least', 'at least'), ('at_most', 'at most')], db_default='', default='', max_length=8),
        ),
        migrations.AddField(
            model_name='job',
            name='stop_value',
            field=models.DecimalField(blank=True, decimal_places=12, max_digits=24, null=True),
        ),
        migrations.AlterField(
            model_name='job',
            name='job_class',
            field=models.CharField(choices=[('best_effort', 'best effort'), ('strict_slo', 'strict deadline'), ('soft_slo', 'soft deadline')], db_default='best_effort', default='best_effort', max_length=16),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('deadline_at__isnull', True), ('job_class', 'best_effort')), models.Q(('deadline_at__isnull', False), ('job_class__in', ('strict_slo', 'soft_slo'))), _connector='OR'), name='job_deadline_of_its_class'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('deadline_steps__isnull', True), ('job_class', 'soft_slo'), _connector='OR'), name='job_steps_of_a_soft_deadline'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('iterations__isnull', True), ('iterations__gte', 1), _connector='OR'), name='job_iterations_at_least_1'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('stop_metric', ''), ('stop_rule', ''), ('stop_value__isnull', True)), models.Q(models.Q(('stop_metric', ''), _negated=True), ('stop_rule__in', ('at_least', 'at_most')), ('iterations__isnull', False), ('stop_value__isnull', False)), _connector='OR'), name='job_metric_whole_and_capped'),
        ),
        bound_columns('scheduling'),
    ]
