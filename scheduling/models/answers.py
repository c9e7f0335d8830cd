"""Answers of rounds to jobs with deadlines. A new row is stored only if the answer changed."""

from django.db import models

from evenshare_core.domain.deadlines import DeadlineLimit, DeadlineState
from scheduling.models.jobs import Job
from tenants.models import Tenant


class JobAnswer(models.Model):
    """An answer to a job's deadline, as a round published it. Append-only.

    `round` is a number of the job's pool and `at` the round's time (pool time). `by_at` and
    `reward_micro` (millionths of a point) are the deadline step that the job's plan meets. `leases`
    and `blocked`: [[start_us, end_us], ...], microseconds since 1970, ascending. `chance_milli`:
    thousandths. See `evenshare_core.domain.deadlines.DeadlineAnswer`.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="answers")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    round = models.BigIntegerField()
    at = models.DateTimeField()
    state = models.CharField(
        max_length=16, choices=[(one.value, one.value) for one in DeadlineState]
    )
    by_at = models.DateTimeField(null=True, blank=True)
    reward_micro = models.BigIntegerField()
    gpu_type = models.CharField(max_length=31, default="", blank=True)
    gpus = models.PositiveIntegerField()
    one_node = models.BooleanField()
    leases = models.JSONField()
    chance_milli = models.PositiveIntegerField(null=True, blank=True)
    limited_by = models.CharField(
        max_length=16,
        default="",
        blank=True,
        choices=[(one.value, one.value) for one in DeadlineLimit],
    )
    blocked = models.JSONField()
    earliest_at = models.DateTimeField(null=True, blank=True)
    cause = models.CharField(max_length=255, default="", blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "round"], name="job_answer_once_a_round"),
        ]
