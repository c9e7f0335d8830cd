"""Lease events (a log per pool, without gaps) and intents (calls to the executor that are due)."""

from django.db import models
from django.db.models.fields.json import KeyTransform

from scheduling.models.cluster import Pool
from scheduling.models.jobs import Job
from scheduling.models.leases import Lease
from tenants.models import Tenant


class LeaseEvent(models.Model):
    """An event of a lease, in the order of the pool's writer. Append-only.

    `number` has no gaps within a pool, so a reader's cursor cannot miss an event. `at` is pool
    time. `term` is the lease's term after the event. Kinds and their `data`:

    - `entitled`: the effective quotas changed (no lease). {"gpu_type", "capacity", "quotas":
      {tenant id: [gpus, lendable at most or null]}}
    - `granted`: {"own", "borrowed", "price", "gpu_type", "expires_us", "late_us"}, and
      "protected_us" if the policy has a minimum runtime. A round is on time for the term until
      `late_us` after it was due; older events do not have these
    - `started`: the executor reports that the lease's process runs. {"own", "borrowed",
      "price", "gpu_type"}
    - `renewed`: the previous term closes at `at`, this one starts. {"own", "borrowed", "price",
      "gpu_type", "expires_us", "late_us"}
    - `stop_asked`: the round takes the GPUs back. {"reason"}. Before the expiry, the event is a
      notice, with its rule and the job that benefits: {"rule", "for_job", "for_tenant",
      "numbers", "notice_s"}
    - `ended`: the last term closes at `at`. {"reason", "exit_code", "started": bool,
      "gpu_type"}. A preempted lease that held no GPUs yet also has the fields of its notice.
      "written_off": true if an operator ended the lease because its engine did not
    - `priced`: prices posted at the end of a round, valid in the next one (no lease).
      {"valid_from_round", "prices": [{"gpu_type", "price", "used", "capacity", "base",
      "theta"}, ...]}. With "queued", "surcharge", "surcharge_step", "surcharge_cap" if the queue
      may add to the price
    - `contradicted`: files of the job report an impossible start or end. The executor's report is
      recorded instead; at most once for a lease. {"said"}
    - `traded`: two tenants exchange quota, or undo an exchange (no lease). The fields of
      `evenshare_core.domain.decision.Trade` by name
    - `promised`: a round promises a start, and a late start earns a credit (no lease).
      {"gpu_type", "gpus", "rate", "due_us"}; the rate is per GPU-hour
    - `late_start`: the job of such a promise started late, or stopped waiting late (no lease).
      {"gpu_type", "gpus", "rate", "promised_round", "latest_us", "until_us",
      "started": bool}
    - `idle`: all GPUs of the lease have been idle since `since_us`, for as long as the pool allows
      without a warning. {"since_us", "gpus"}. With "session", its kind: the session was
      not used since then
    - `promise_ended`: a round ends a promise although the job still waits (no lease).
      {"due_us", "lost_node": bool}
    """

    class Kind(models.TextChoices):
        ENTITLED = "entitled"
        GRANTED = "granted"
        STARTED = "started"
        RENEWED = "renewed"
        STOP_ASKED = "stop_asked"
        ENDED = "ended"
        PRICED = "priced"
        TRADED = "traded"
        CONTRADICTED = "contradicted"
        PROMISED = "promised"
        LATE_START = "late_start"
        PROMISE_ENDED = "promise_ended"
        IDLE = "idle"

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
            # The pool's page and the API list preemptions, newest first.
            models.Index(
                fields=["pool", "-number"],
                name="event_notice_by_pool",
                condition=models.Q(data__has_key="rule"),
            ),
            # A job's page and the API list the leases that were preempted for the job.
            models.Index(
                KeyTransform("for_job", "data"),
                name="event_notice_by_winner",
                condition=models.Q(data__has_key="rule"),
            ),
            # Readers of a period look up the quotas that were in force.
            models.Index(
                fields=["pool", "at", "number"],
                name="event_quota_by_time",
                condition=models.Q(kind="entitled"),
            ),
            # Pages list the trades of a round and of a pool, newest first.
            models.Index(
                fields=["pool", "round", "number"],
                name="event_trade_by_round",
                condition=models.Q(kind="traded"),
            ),
            # Settlement reads the late starts of an hour.
            models.Index(
                fields=["pool", "at", "number"],
                name="event_late_start_by_time",
                condition=models.Q(kind="late_start"),
            ),
        ]


class Intent(models.Model):
    """A call to the executor for a lease, stored with the round's writes and made after the commit.

    There is at most one intent per (lease, kind, term), so delivering it twice changes nothing.
    """

    class Kind(models.TextChoices):
        LAUNCH = "launch"
        STOP = "stop"

    class State(models.TextChoices):
        OPEN = "open"
        DONE = "done"

    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="intents")
    lease = models.ForeignKey(Lease, on_delete=models.PROTECT, related_name="intents")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    term = models.PositiveIntegerField()
    at = models.DateTimeField(help_text="Pool time at which the change takes effect.")
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
