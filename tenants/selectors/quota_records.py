"""Periods of quotas as data for the audit log, with names in place of row numbers.

Old records have row numbers in `tenant` and `gpu_type`, and the slug in `name`.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.apps import apps
from django.utils.translation import gettext as _

from tenants.language import number
from tenants.models import AuditRecord, Tenant
from tenants.periods import Dilution, Key, Period, QuotaTerms

_FIELDS = ("tenant", "gpu_type")


def periods_to_plain(periods: Mapping[Key, Sequence[Period]]) -> list[dict[str, Any]]:
    """Return periods as plain data for the audit log; `periods_from_plain` is its inverse."""
    names = _names()
    return [
        {
            "tenant": names["tenant"][key[0]],
            "gpu_type": names["gpu_type"][key[1]],
            "gpus": period.terms.gpus,
            "mode": period.terms.mode,
            "borrow_limit": period.terms.borrow_limit,
            "lend_limit": period.terms.lend_limit,
            "since": period.since.isoformat(),
            "until": period.until.isoformat() if period.until else None,
        }
        for key in sorted(periods)
        for period in periods[key]
    ]


def periods_from_plain(rows: Iterable[Mapping[str, Any]]) -> dict[Key, tuple[Period, ...]]:
    """Return periods from the data of `periods_to_plain`.

    Raises:
        KeyError: a name does not exist any more.
    """
    numbers = {
        field: {name: number for number, name in names.items()} for field, names in _names().items()
    }
    periods: dict[Key, tuple[Period, ...]] = {}
    for row in rows:
        terms = QuotaTerms(row["gpus"], row["mode"], row["borrow_limit"], row["lend_limit"])
        until = datetime.fromisoformat(row["until"]) if row["until"] else None
        period = Period(terms, datetime.fromisoformat(row["since"]), until)
        tenant, gpu_type = (
            row[field] if isinstance(row[field], int) else numbers[field][row[field]]
            for field in _FIELDS
        )
        periods[tenant, gpu_type] = (*periods.get((tenant, gpu_type), ()), period)
    return periods


def dilutions_to_plain(dilutions: Iterable[Dilution]) -> list[dict[str, Any]]:
    """Return dilutions by names, for the audit log and for responses."""
    names, called = _names(), dict(Tenant.objects.values_list("id", "name"))
    return [
        {
            "gpu_type": names["gpu_type"][one.gpu_type],
            "from": one.at.isoformat(),
            "quotas": one.quotas,
            "capacity": one.capacity,
            "tenants": [
                {
                    "tenant": names["tenant"][tenant],
                    "name": called[tenant],
                    "quota": quota,
                    "before": old,
                    "after": new,
                }
                for tenant, quota, old, new in one.losers
            ],
        }
        for one in dilutions
    ]


def dilution_text(row: Mapping[str, Any]) -> str:
    """Return the warning for a dilution in the form of `dilutions_to_plain`."""
    begins = row["from"][:16].replace("T", " ")
    text = _(
        "{gpu_type}: quotas sum to {quotas} GPUs, the pool has {capacity} from {begins} on."
    ).format(
        gpu_type=row["gpu_type"],
        quotas=number(row["quotas"]),
        capacity=number(row["capacity"]),
        begins=begins,
    )
    losers = [
        # Old records have only slugs.
        _("{tenant} {after} instead of {before}").format(
            tenant=one.get("name") or one["tenant"],
            after=number(one["after"]),
            before=number(one["before"]),
        )
        for one in row["tenants"]
    ]
    shrinks = _("Each quota shrinks in proportion: {losers}.").format(losers=", ".join(losers))
    return f"{text} {shrinks}" if losers else text


def name_periods(records: Sequence[AuditRecord]) -> None:
    """Replace row numbers in shown records by names; two queries if any record has numbers."""
    rows = [
        row
        for record in records
        for data in (record.before, record.after)
        for row in data.get("periods", ())
    ]
    numbered = [row for row in rows if any(isinstance(row[field], int) for field in _FIELDS)]
    if not numbered:
        return
    names = _names()
    for row in numbered:
        row.pop("name", None)
        for field in _FIELDS:
            row[field] = names[field].get(row[field], str(row[field]))


def _names() -> dict[str, dict[int, str]]:
    # `tenants` may not import the app that has this model.
    types = apps.get_model("scheduling", "GpuType")
    return {
        "tenant": dict(Tenant.objects.values_list("id", "slug")),
        "gpu_type": dict(types.objects.values_list("id", "name")),
    }
