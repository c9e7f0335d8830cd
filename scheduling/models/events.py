"""Lease events (what happened, gapless per pool) and intents (what the executor shall do)."""

from __future__ import annotations

from django.db import models
from django.db.models.fields.json import KeyTransform

from scheduling.models.cluster import Pool
from scheduling.models.jobs import Job
from scheduling.models.leases import Lease
from tenants.models import Tenant


class LeaseEvent(models.Model):
    """What happened to a lease, in the order of the pool's writer. Append-only.

    `number` has no gaps inside a pool, so a reader's cursor cannot miss one. `at` is pool
    time. `term` is the lease's term after the event. Kinds and their `data`:

    - `entitled`: the effective quotas changed (no lease). {"gpu_type", "capacity", "quotas":
      {tenant id: [gpus, lendable at most or null]}}
    - `granted`: {"own", "borrowed", "price", "gpu_type", "expires_us", "late_us"}, and
      "protected_us" if the policy has a minimum runtime. A round is on time for the term until
      `late_us` after it was due; events of before ADR 0232 do not have these
    - `started`: the executor reports it runs. {"own", "borrowed", "price", "gpu_type"}
    - `renewed`: the term before closes at `at`, this one begins. {"own", "borrowed", "price",
      "gpu_type", "expires_us", "late_us"}
    - `stop_asked`: the round takes the GPUs back. {"reason"}; before the expiry, as notice, also
      {"rule", "for_job", "for_tenant", "numbers", "notice_s"}: by which rule and for whom
    - `ended`: the last term closes at `at`. {"reason", "exit_code", "started": bool,
      "gpu_type"}; of a preempted lease that held no GPUs yet also what its notice would say.
      "written_off": true where an operator ended it, for its engine did not (0230)
    - `priced`: prices posted at the end of a round, valid in the next one (no lease).
      {"valid_from_round", "prices": [{"gpu_type", "price", "used", "capacity", "base",
      "theta"}, ...]}; with "queued", "surcharge", "surcharge_step", "surcharge_cap" where the queue
      may add to the price
    - `contradicted`: files of the job say of its start or end what cannot be by the executor, whose
      word is recorded; once for a lease at most. {"said"}
    - `traded`: two tenants exchange quota, or undo that (no lease). The fields of
      `evenshare_core.domain.decision.Trade` by name
    """

    class Kind(models.TextChoices):
        """What happened."""

        ENTITLED = "entitled"
        GRANTED = "granted"
        STARTED = "started"
        RENEWED = "renewed"
        STOP_ASKED = "stop_asked"
        ENDED = "ended"
        PRICED = "priced"
        TRADED = "traded"
        CONTRADICTED = "contradicted"

    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="events")
    number = models.BigIntegerField()
    kind = models.CharField(max_length=16, choices=Kind.choices)
    at = models.DateTimeField()
    posted_at = models.DateTimeField(auto_now_add=True)
    round = models.BigIntegerField(null=True)
    lease = models.ForeignKey(Lease, on_delete=models.PROTECT, null=True, related_name="events")
    job = models.ForeignKey(Job, on_delete=models.PROTECT, null=True, related_name="events")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True)
    term = models.PositiveIntegerField(null=True)
    data = models.JSONField(default=dict)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["pool", "number"], name="event_number_once"),
        ]
        indexes = [
            models.Index(fields=["job", "id"], name="event_by_job"),
            # The pool's page and the API list what was preempted, newest first.
            models.Index(
                fields=["pool", "-number"],
                name="event_notice_by_pool",
                condition=models.Q(data__has_key="rule"),
            ),
            # A job's page and the API list what made way for it.
            models.Index(
                KeyTransform("for_job", "data"),
                name="event_notice_by_winner",
                condition=models.Q(data__has_key="rule"),
            ),
            # Quotas of a stretch of time, and the last ones before it.
            models.Index(
                fields=["pool", "at", "number"],
                name="event_quota_by_time",
                condition=models.Q(kind="entitled"),
            ),
            # Trades of a round, and those of a pool, newest first.
            models.Index(
                fields=["pool", "round", "number"],
                name="event_trade_by_round",
                condition=models.Q(kind="traded"),
            ),
        ]


class Intent(models.Model):
    """What the executor shall do for a lease, written with the plan, carried out after commit.

    At most one per (lease, kind, term): delivering it twice changes nothing.
    """

    class Kind(models.TextChoices):
        """What to do."""

        LAUNCH = "launch"
        STOP = "stop"

    class State(models.TextChoices):
        """How far it got."""

        OPEN = "open"
        DONE = "done"

    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="intents")
    lease = models.ForeignKey(Lease, on_delete=models.PROTECT, related_name="intents")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    term = models.PositiveIntegerField()
    at = models.DateTimeField(help_text="Pool time at which it is to take effect.")
    state = models.CharField(max_length=16, choices=State.choices, default=State.OPEN)
    attempts = models.PositiveIntegerField(default=0)
    last_error = models.CharField(max_length=400, default="", blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["lease", "kind", "term"], name="intent_once"),
        ]
        indexes = [
            models.Index(
                fields=["pool", "id"],
                name="intent_open_by_pool",
                condition=models.Q(state="open"),
            ),
        ]
