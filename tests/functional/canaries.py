"""Find values that must never appear in another tenant's answer, by the models' relations.

`OWNED` lists the tables of a tenant, with the path from a row to the tenant; `SHARED` lists the
others. A new table is in neither, and a test fails until it is added.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import ROUND_FLOOR, Decimal
from typing import Any
from uuid import UUID

from django.apps import apps
from django.contrib.postgres.fields import ArrayField
from django.db import models

from billing.models import (
    Account,
    Book,
    Entry,
    LoggedTransfer,
    MeterCursor,
    PostedPrice,
    Transfer,
    TransferRequest,
    UsageLine,
    UsageShare,
)
from portal.charts.figures import credits_text
from scheduling import models as scheduling
from tenants import models as tenants
from tests.functional.two_tenants import Side

APPS = ("tenants", "scheduling", "billing")
OWNED: dict[type[models.Model], str] = {
    tenants.Tenant: "pk",
    tenants.User: "memberships__tenant",
    tenants.Membership: "tenant",
    tenants.Invitation: "tenant",
    tenants.Quota: "tenant",
    tenants.Budget: "tenant",
    tenants.SharingSetting: "tenant",
    tenants.PriceLimit: "tenant",
    tenants.IdleOffer: "tenant",
    tenants.SavedFilter: "tenant",
    tenants.QuotaChangeRequest: "tenant",
    tenants.DailySpend: "tenant",
    tenants.IdempotentReply: "tenant",
    tenants.ApiToken: "user__memberships__tenant",
    tenants.AuditRecord: "actor__memberships__tenant",
    scheduling.EqualPeople: "tenant",
    scheduling.Job: "tenant",
    scheduling.JobDependency: "job__tenant",
    scheduling.SessionCode: "job__tenant",
    scheduling.Sweep: "tenant",
    scheduling.Profile: "tenant",
    scheduling.Measurement: "tenant",
    scheduling.MeasurementNote: "tenant",
    scheduling.RunRecord: "tenant",
    scheduling.MetricHistory: "tenant",
    scheduling.StopForecast: "tenant",
    scheduling.VirtualSpeeds: "tenant",
    scheduling.IterationReading: "lease__tenant",
    scheduling.Arrival: "tenant",
    scheduling.IdleReading: "lease__tenant",
    scheduling.IdleDay: "tenant",
    scheduling.VirtualWork: "job__tenant",
    scheduling.Lease: "tenant",
    scheduling.LeaseSlot: "lease__tenant",
    scheduling.LeaseTerm: "lease__tenant",
    scheduling.LeaseEvent: "tenant",
    scheduling.Intent: "lease__tenant",
    scheduling.StartEstimate: "tenant",
    scheduling.JobPlan: "tenant",
    scheduling.JobAnswer: "tenant",
    scheduling.Verification: "tenant",
    scheduling.Subscription: "tenant",
    scheduling.Message: "tenant",
    scheduling.Delivery: "tenant",
    Account: "tenant",
    Transfer: "tenant",
    LoggedTransfer: "transfer__entries__account__tenant",
    Entry: "account__tenant",
    UsageLine: "tenant",
    UsageShare: "account__tenant",
    TransferRequest: "tenant",
}
# Tables of pools or of the site; a tenant's values in these are also in a table above.
SHARED: tuple[type[models.Model], ...] = (
    tenants.LoginAttempt,
    tenants.RateBucket,
    tenants.TransparencyLog,
    tenants.LogEntry,
    tenants.LogNode,
    tenants.LogKey,
    tenants.LogScrub,
    scheduling.GpuType,
    scheduling.Pool,
    scheduling.PoolClock,
    scheduling.PoolFence,
    scheduling.PriceSetting,
    scheduling.Node,
    scheduling.TraceFeed,
    scheduling.MaintenanceWindow,
    scheduling.RoundFailure,
    scheduling.ExecutorHealth,
    scheduling.Round,
    scheduling.RoundBlob,
    scheduling.RoundScrub,
    scheduling.RoundState,
    scheduling.RoundBundle,
    scheduling.RoundSealing,
    scheduling.RoundArchive,
    scheduling.RoundArchiving,
    scheduling.PseudonymKey,
    scheduling.Simulation,
    scheduling.StartForecast,
    scheduling.PriceForecast,
    scheduling.OutboxCursor,
    Book,
    PostedPrice,
    MeterCursor,
)
# Texts that are not private to the tenant: codes, words of a pool, hashes of secrets, and the only
# name that other tenants may read.
NOT_ITS_OWN = {
    "Tenant.name": "read by others where a pool names tenants",
    "Tenant.initials": "the same",
    "User.password": "a hash",
    "User.job_columns": "words of the list",
    "User.identity": "of the person's own sign-in; no page shows it",
    "User.language": "a code",
    "Budget.book": "a currency of all",
    "DailySpend.book": "the same",
    "IdempotentReply.route": "an address",
    "IdempotentReply.digest": "a hash",
    "IdempotentReply.made": "ids of jobs",
    "ApiToken.digest": "a hash",
    "Invitation.digest": "a hash",
    "ApiToken.scopes": "codes",
    "AuditRecord.action": "a code",
    "AuditRecord.reason": "written by operators, or the text of a request",
    "AuditRecord.before": "of a first declaration: nothing",
    "AuditRecord.after": "speeds, codes, GPUs and prices",
    "Job.source": "a code",
    "Job.gpu_types": "words of the pool",
    "Job.reason_code": "a code",
    "Job.holds": "codes",
    "Job.utility": "a word and numbers",
    "Job.estimate_source": "a code",
    "Job.job_class": "a code",
    "Job.deadline_steps": "numbers",
    "Job.stop_rule": "a code",
    "SessionCode.code_hash": "a hash",
    "Profile.speedups": "by words of the pool",
    "Profile.declared": "the same",
    "Profile.measured": "the same",
    "Measurement.gpu_type": "a word of the pool",
    "MeasurementNote.data": "figures, and a reason of ours",
    "RunRecord.runs": "figures, by words of the pool",
    "MetricHistory.points": "figures",
    "MetricHistory.refused": "a reason of ours",
    "StopForecast.note": "the same",
    "StopForecast.families": "names of curves",
    "VirtualSpeeds.speedups": "by words of the pool",
    "Arrival.extra": "figures of a trace",
    "VirtualWork.token": "made of numbers",
    "StartEstimate.reason": "a code",
    "JobPlan.gpu_type": "a word of the pool",
    "Verification.kind": "a code",
    "Verification.root": "a hash",
    "JobAnswer.gpu_type": "the same",
    "Subscription.kinds": "codes",
    "Subscription.zone": "a time zone",
    "Message.event": "made of numbers",
    "JobAnswer.leases": "instants",
    "JobAnswer.blocked": "the same",
    "JobAnswer.cause": "a sentence of the policy",
    "Lease.placement": "numbers",
    "LeaseEvent.data": "figures and codes",
    "Intent.last_error": "of an executor that failed",
    "Transfer.data": "figures",
    "Transfer.body_sha256": "a hash",
}
# The name that other tenants may read in some pools, and the text of log files.
NAME, LOG = "Tenant.name", "Log.text"
TEXTS = (models.CharField, models.TextField, models.JSONField)
# Values that identify a tenant: texts, ids, amounts, and keys that are ids.
TELLING = (*TEXTS, ArrayField, models.UUIDField, models.DecimalField, models.ForeignKey)
LEAST_DIGITS, CENT = 5, Decimal("0.01")


def own_tables() -> set[type[models.Model]]:
    return {
        model
        for name in APPS
        for model in apps.get_app_config(name).get_models()
        if not model._meta.auto_created or model in OWNED
    }


def text_fields(model: type[models.Model]) -> list[str]:
    """Return the columns of a table with texts, except those with fixed choices."""
    return [
        one.attname
        for one in model._meta.concrete_fields
        if isinstance(one, (*TEXTS, ArrayField)) and not one.choices
    ]


def values(model: type[models.Model], side: Side, column: str) -> list[Any]:
    """Return the values of a column in a tenant's rows."""
    rows = model._default_manager.filter(**{OWNED[model]: side.tenant.pk})
    return list(rows.values_list(column, flat=True).distinct())


def texts(value: Any) -> Iterator[str]:
    """Yield every text in the value of a column, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item)


def forms(amount: Decimal) -> set[str]:
    """Return the ways in which answers print an amount; empty if it is too short to be unique.

    A column whose printed sum must match rounds some amounts up and others down.
    """
    exact = abs(amount).quantize(Decimal("0.000001"))
    low = exact.quantize(CENT, rounding=ROUND_FLOOR)
    shown = {credits_text(low), credits_text(low + CENT)}
    if not exact or sum(sign.isdigit() for sign in credits_text(low)) < LEAST_DIGITS:
        return set()
    return {str(exact), credits_text(exact, 6), *shown}


def canaries(side: Side) -> dict[str, set[str]]:
    """Return all texts, ids and amounts of a tenant by column, such as `Job.name`."""
    found: dict[str, set[str]] = {}
    for model, way in OWNED.items():
        columns = [one for one in model._meta.concrete_fields if isinstance(one, TELLING)]
        names = {one.attname: f"{model.__name__}.{one.name}" for one in columns}
        found |= {name: set() for name in names.values()}
        for row in model._default_manager.filter(**{way: side.tenant.pk}).values(*names):
            for column, value in row.items():
                found[names[column]] |= _canaries_of(value, side.word)
    return {**found, NAME: {side.name}, LOG: {f"{side.word}-output"}}


def _canaries_of(value: Any, word: str) -> set[str]:
    if isinstance(value, UUID):
        return {str(value), value.hex}
    if isinstance(value, Decimal):
        return forms(value)
    return {text for text in texts(value) if word in text.lower()}


def strange_ids(me: Side, other: Side) -> set[str]:
    """Return another tenant's ids and amounts that occur in no row of `me`."""
    mine = set().union(*canaries(me).values())
    apart = canaries(other)
    theirs = set().union(*(apart[name] for name in apart if name not in {NAME, *AMOUNTS_SHARED}))
    theirs |= _amounts_alone(other)
    return {text for text in theirs - mine if other.word not in text.lower()}


# A lender sees the payments of its borrowers, so in pools that both share these are not secret. In
# a pool of one tenant they are secret.
AMOUNTS_SHARED = {
    "UsageLine.amount", "UsageLine.price", "UsageShare.amount", "Entry.amount", "Lease.price",
    "LeaseTerm.price",
}  # fmt: skip


def strange_incomes(me: Side, other: Side) -> set[str]:
    """Return the other tenant's income from third tenants, which is private if rows are hidden."""
    earned = UsageShare.objects.filter(account__tenant=other.tenant)
    rows = earned.exclude(line__tenant__in=[me.tenant, other.tenant])
    amounts = set(rows.values_list("amount", flat=True))
    mine = UsageShare.objects.filter(account__tenant=me.tenant).values_list("amount", flat=True)
    return set().union(*(forms(amount) for amount in amounts - set(mine)))


def _amounts_alone(side: Side) -> set[str]:
    pool = side.alone.pool
    lines = UsageLine.objects.filter(tenant=side.tenant, pool=pool)
    entries = Entry.objects.filter(account__tenant=side.tenant, transfer__pool=pool)
    amounts = {*lines.values_list("amount", flat=True), *lines.values_list("price", flat=True)}
    amounts |= set(entries.values_list("amount", flat=True))
    return set().union(*(forms(amount) for amount in amounts))
