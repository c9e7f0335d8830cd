"""Plans that policies publish for jobs: start, price and gain, or the price of admission."""

from django.db import models
from django.db.models import Q

from evenshare_core.domain.decision import PlanKind
from scheduling.models.jobs import Job
from tenants.models import Tenant


class JobPlan(models.Model):
    """A job's newest plan, published by `round` of the job's pool at the time `at`.

    Times are pool time; prices are credits per GPU-hour. The plan of a refused job has no times and
    no cost. `needed` is the price at which the job would be admitted, `lowest` the lowest price at
    that time. A plan is not binding. Each batch of decisions computes it again, and writes the row
    if the plan changed.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="plan")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    round = models.BigIntegerField()
    at = models.DateTimeField()
    kind = models.CharField(max_length=16, choices=[(kind.value, kind.value) for kind in PlanKind])
    gpu_type = models.SlugField(max_length=31)
    gpus = models.PositiveIntegerField()
    borrowed = models.PositiveIntegerField()
    starts_at = models.DateTimeField(null=True, blank=True)
    ends_at = models.DateTimeField(null=True, blank=True)
    price = models.DecimalField(max_digits=20, decimal_places=6)
    cost = models.DecimalField(max_digits=20, decimal_places=6)
    value = models.DecimalField(max_digits=20, decimal_places=6)
    needed = models.DecimalField(max_digits=20, decimal_places=6)
    lowest = models.DecimalField(max_digits=20, decimal_places=6)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(kind=PlanKind.REFUSED.value) ^ Q(starts_at__isnull=False),
                name="plan_refused_or_starts",
            ),
        ]
