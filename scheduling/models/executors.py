"""How a pool's executor answers: what its circuit breaker and its guard against losses keep."""

from __future__ import annotations

from django.db import models

from scheduling.models.cluster import Pool


class ExecutorHealth(models.Model):
    """A pool whose executor failed, or left launched leases out. None: it always answered well.

    Wall time of the database; tokens name leases. `failures` calls failed in a row since
    `failing_since`, the last with `error`; none is made before `open_until`. `missing`: launched
    leases that the listing of `listed_at` left out, with the instant since when. Nothing is
    concluded while `frozen_since` is set. `accepted`: those of them that an operator says are gone.
    `written_off`: leases that an operator ended, until a round does so. `orphans`: what the last
    listing had running although its lease has ended, with the instant since when.
    Written by `scheduling.engine.breaker`, `scheduling.engine.missing`,
    `scheduling.engine.write_offs`, `scheduling.services.executors` and
    `scheduling.services.write_offs`.
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
        default=0, db_default=0, help_text="Launched leases when they were last compared."
    )
    listed_at = models.DateTimeField(null=True, blank=True)
    frozen_since = models.DateTimeField(null=True, blank=True)
    accepted = models.JSONField(default=list, db_default=[], blank=True)
    written_off = models.JSONField(default=list, db_default=[], blank=True)
    orphans = models.JSONField(default=dict, db_default={}, blank=True)
