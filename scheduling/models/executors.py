"""The health of a pool's executor: state of its circuit breaker and of its guard against losses."""

from django.db import models

from scheduling.models.cluster import Pool


class ExecutorHealth(models.Model):
    """The health of an executor that failed, or did not list launched leases.

    Healthy executors have no row.

    All times are the database's wall time; tokens name leases. `failures` counts the consecutive
    failed calls since `failing_since`; `error` is from the last one. No call is made before
    `open_until`. `missing`: launched leases that the listing at `listed_at` did not contain, each
    with the first time at which it was missing. While `frozen_since` is set, no lease is declared
    lost. `accepted`: missing leases that an operator declared lost. `written_off`: leases that an
    operator ended, until a round ends them. `orphans`: processes in the last listing whose leases
    have ended, each with the time at which it was first seen. Written by
    `scheduling.engine.breaker`, `scheduling.engine.missing`, `scheduling.engine.write_offs`,
    `scheduling.services.executors` and `scheduling.services.write_offs`.
    """

    pool = models.OneToOneField(
        Pool, on_delete=models.CASCADE, primary_key=True, related_name="executor_health"
    )
    failures = models.PositiveIntegerField(default=0, db_default=0)
    failing_since = models.DateTimeField(null=True, blank=True)
    open_until = models.DateTimeField(null=True, blank=True)
    error = models.CharField(max_length=400, default="", db_default="", blank=True)
    missing = models.JSONField(default=dict, db_default={}, blank=True)
    launched = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Launched leases at the last comparison with the engine."
    )
    listed_at = models.DateTimeField(null=True, blank=True)
    frozen_since = models.DateTimeField(null=True, blank=True)
    accepted = models.JSONField(default=list, db_default=[], blank=True)
    written_off = models.JSONField(default=list, db_default=[], blank=True)
    orphans = models.JSONField(default=dict, db_default={}, blank=True)
