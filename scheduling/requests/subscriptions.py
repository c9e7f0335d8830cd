"""A request to be notified of a tenant's events."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from django.utils.translation import gettext as _
from msgspec import Meta

from tenants.input.errors import FieldErrors
from tenants.input.requests import Input, Request
from tenants.language import gettext_noop

# The kinds of events that a person can choose, with the text of the form.
KINDS = {
    "job_started": gettext_noop("A job starts for the first time"),
    "job_ended": gettext_noop("A job finishes or is cancelled"),
    "job_failed": gettext_noop("A job fails"),
    "job_preempted": gettext_noop("A job is preempted, or loses its node"),
    "job_not_renewed": gettext_noop("A job's lease is not renewed, so it waits again"),
    "job_idle": gettext_noop("A job's GPUs are idle, or are returned and the job is held"),
    "start_promised": gettext_noop("A start is promised, or a promise is broken"),
    "deadline_moved": gettext_noop("The answer to a job's deadline changes"),
    "budget_reached": gettext_noop("80 % or 100 % of the budget is used"),
    "offer_revoked": gettext_noop("An offer of idle quota is revoked"),
    "quota_decided": gettext_noop("A request for quota is decided"),
}
KINDS_USUAL = ("job_ended", "job_failed", "job_idle")
CHANNELS = {
    "mail": gettext_noop("Mail"),
    "webhook": gettext_noop("Webhook"),
    "slack": gettext_noop("Slack or Mattermost"),
    "ntfy": "ntfy",
}
HourOfDay = Annotated[int, Meta(ge=0, le=23)]
MINE, ALL = "mine", "all"
JOBS = {MINE: gettext_noop("My jobs"), ALL: gettext_noop("All jobs of the tenant")}


def _read_kinds(given: Mapping[str, object], errors: FieldErrors) -> tuple[str, ...]:
    wanted = given.get("kinds", KINDS_USUAL)
    if (
        not isinstance(wanted, list | tuple)
        or not 1 <= len(wanted) <= len(KINDS)
        or any(not isinstance(name, str) or name not in KINDS for name in wanted)
    ):
        errors.add(
            "kinds",
            _("Choose at least one."),
            _("Allowed kinds: {kinds}.").format(kinds=", ".join(KINDS)),
        )
        return ()
    return tuple(dict.fromkeys(map(str, wanted)))


class SubscriptionRequest(Request, frozen=True, kw_only=True):
    """Messages of a tenant's events to one address.

    A second request with the same tenant, channel, address, pool and tag changes the subscription.
    """

    NOUN: ClassVar[str] = "a subscription"

    tenant: Annotated[
        str,
        Meta(max_length=63, description="Tenant of which you are a member."),
        Input(label="Tenant"),
    ]
    channel: Annotated[
        str,
        Meta(description="How messages are sent."),
        Input(label="Channel", choices=tuple(CHANNELS)),
    ] = "mail"
    address: Annotated[
        str,
        Meta(
            max_length=500,
            description="Mail address, or an https URL; without it, your account's mail address.",
        ),
        Input(
            label="Address",
            hint="Mail address, or a URL. Empty: the mail address of your account.",
        ),
    ] = ""
    kinds: Annotated[
        tuple[str, ...],
        Meta(min_length=1, description="The kinds of events."),
        Input(read=_read_kinds),
    ] = KINDS_USUAL
    jobs: Annotated[
        str,
        Meta(description="Whose jobs: your own, or all of the tenant."),
        Input(label="Jobs", choices=tuple(JOBS)),
    ] = MINE
    pool: Annotated[
        str,
        Meta(max_length=63, description="Only events of this pool; empty: of all pools."),
        Input(label="Pool"),
    ] = ""
    tag: Annotated[
        str,
        Meta(
            pattern="[-a-zA-Z0-9_]{0,31}",
            description="Only jobs with this tag; empty: with any or no tag.",
        ),
        Input(label="Tag"),
    ] = ""
    digest_hour: Annotated[
        HourOfDay | None,
        Meta(description="Hour of a daily digest by mail; null: each event at once."),
        Input(label="Daily digest at", unit="h", hint="0 to 23. Empty: each event at once."),
    ] = None
    zone: Annotated[
        str,
        Meta(max_length=63, description="Time zone of the digest's hour, such as Europe/Berlin."),
        Input(label="Time zone", hint="Such as Europe/Berlin."),
    ] = "UTC"
