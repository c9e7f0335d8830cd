"""The outbox: subscriptions of people, messages to send, and the log of deliveries."""

import uuid

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from scheduling.models.cluster import Pool
from scheduling.models.jobs import Job
from tenants.models import Tenant


class Channel(models.TextChoices):
    """The way by which a message reaches its receiver."""

    MAIL = "mail", "mail"
    WEBHOOK = "webhook", "webhook"
    SLACK = "slack", "Slack or Mattermost"
    NTFY = "ntfy", "ntfy"


class MessageKind(models.TextChoices):
    """The subject of a message. Names are part of the API."""

    JOB_STARTED = "job_started", "job started"
    JOB_ENDED = "job_ended", "job finished or was cancelled"
    JOB_FAILED = "job_failed", "job failed"
    JOB_PREEMPTED = "job_preempted", "job was preempted or lost its node"
    JOB_NOT_RENEWED = "job_not_renewed", "job's lease ended and the job waits again"
    JOB_IDLE = "job_idle", "job's GPUs are idle"
    START_PROMISED = "start_promised", "start was promised, or a promise was not kept"
    DEADLINE_MOVED = "deadline_moved", "answer to a deadline changed"
    OFFER_REVOKED = "offer_revoked", "offer of idle quota was revoked"
    QUOTA_DECIDED = "quota_decided", "request for quota was decided"
    BUDGET_REACHED = "budget_reached", "budget is 80 % or 100 % used"
    TEST = "test", "test message"
    CONFIRM = "confirm", "address to confirm"


class Subscription(models.Model):
    """A person's request for messages of a tenant's events at one address. Times are wall time.

    It applies to one pool or all, to jobs with a tag or all, and with `is_own` only to the person's
    own jobs. With `digest_hour`, mail is collected until this hour of the person's `zone`;
    `digest_at` is the next such time. `failing_since`, `failures` and `retry_at` describe the
    failures since the last success. A sender holds the receiver until `claimed_until`; each claim
    raises `claim`. `note`: why it was switched off. `confirmed_at`: when the reader of an address
    other than the account's agreed; null again after they stopped the mails. The secret of a
    webhook is derived from `uid` and not stored (0245).
    """

    class State(models.TextChoices):
        """Only an active subscription gets messages. `failed`: switched off by the portal."""

        UNCONFIRMED = "unconfirmed", "not confirmed"
        ACTIVE = "active", "active"
        PAUSED = "paused", "paused"
        FAILED = "failed", "switched off"

    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="subscriptions"
    )
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    pool = models.ForeignKey(
        Pool, on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    tag = models.CharField(max_length=31, default="", db_default="", blank=True)
    is_own = models.BooleanField(default=True, db_default=True)
    channel = models.CharField(max_length=15, choices=Channel.choices)
    address = models.CharField(max_length=500)
    kinds = ArrayField(models.CharField(max_length=31))
    digest_hour = models.PositiveSmallIntegerField(null=True, blank=True)
    zone = models.CharField(max_length=63, default="UTC", db_default="UTC")
    digest_at = models.DateTimeField(null=True, blank=True)
    state = models.CharField(max_length=15, choices=State.choices, default=State.ACTIVE)
    note = models.CharField(max_length=200, default="", db_default="", blank=True)
    created_at = models.DateTimeField(db_default=Now())
    confirmed_at = models.DateTimeField(null=True, blank=True)
    failures = models.PositiveIntegerField(default=0, db_default=0)
    failing_since = models.DateTimeField(null=True, blank=True)
    retry_at = models.DateTimeField(null=True, blank=True)
    claimed_until = models.DateTimeField(null=True, blank=True)
    claim = models.PositiveBigIntegerField(default=0, db_default=0)

    class Meta:
        constraints = [
            # A repeated request changes the subscription instead of adding another one.
            models.UniqueConstraint(
                fields=["person", "tenant", "channel", "address", "pool", "tag"],
                name="subscription_once",
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=Q(digest_hour__isnull=True, digest_at__isnull=True)
                | Q(channel="mail", digest_hour__lte=23, digest_at__isnull=False),
                name="subscription_digest_of_mail",
            ),
        ]
        indexes = [
            models.Index(
                fields=["tenant"], condition=Q(state="active"), name="subscription_by_tenant"
            ),
        ]


class Message(models.Model):
    """A message of the outbox to one subscription, about one event.

    `event` names the event, so that a subscription gets one message of it. `at` is pool time, other
    times are wall time. The sender makes the text from `kind` and `data`. `uid` is the same in all
    attempts, so that receivers can drop repeated messages. `due_at` is the time of the next
    attempt.
    """

    class State(models.TextChoices):
        """`dropped`: its person may no longer read it."""

        DUE = "due"
        SENT = "sent"
        FAILED = "failed"
        DROPPED = "dropped"

    uid = models.UUIDField(default=uuid.uuid4, db_default=RandomUUID(), unique=True, editable=False)
    subscription = models.ForeignKey(
        Subscription, on_delete=models.CASCADE, related_name="messages"
    )
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, null=True, related_name="+")
    kind = models.CharField(max_length=31, choices=MessageKind.choices)
    event = models.CharField(max_length=100)
    data = models.JSONField(default=dict)
    at = models.DateTimeField()
    created_at = models.DateTimeField(db_default=Now())
    due_at = models.DateTimeField()
    state = models.CharField(
        max_length=15, choices=State.choices, default=State.DUE, db_default=State.DUE.value
    )
    attempts = models.PositiveIntegerField(default=0, db_default=0)
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["subscription", "event"], name="message_once"),
        ]
        indexes = [
            # Senders read the due messages of a receiver.
            models.Index(
                fields=["subscription", "due_at"],
                condition=Q(state="due"),
                name="message_due_by_receiver",
            ),
            models.Index(fields=["created_at"], name="message_by_age"),
        ]


class Delivery(models.Model):
    """An attempt to deliver a message, which never changes. Housekeeping deletes old ones.

    `status`: the reply code of HTTP or SMTP, if there was a reply. `response`: its start.
    """

    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="deliveries")
    subscription = models.ForeignKey(Subscription, on_delete=models.CASCADE, related_name="+")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    at = models.DateTimeField()
    is_ok = models.BooleanField()
    status = models.PositiveIntegerField(null=True)
    error = models.CharField(max_length=200, default="", blank=True)
    response = models.CharField(max_length=200, default="", blank=True)
    duration_ms = models.PositiveIntegerField()

    class Meta:
        indexes = [
            models.Index(fields=["subscription", "-id"], name="delivery_by_subscription"),
            # Metrics count the attempts of the last hour.
            models.Index(fields=["at"], name="delivery_by_time"),
        ]


class OutboxCursor(models.Model):
    """Up to which event and round of a pool the outbox has made messages."""

    pool = models.OneToOneField(
        Pool, on_delete=models.CASCADE, primary_key=True, related_name="outbox_cursor"
    )
    event_number = models.PositiveBigIntegerField(default=0)
    answer_round = models.PositiveBigIntegerField(default=0)
