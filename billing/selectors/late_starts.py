"""Promised starts that were late, and the credits for them, from the events of rounds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from billing.models import Transfer
from billing.selectors.events import hour_of
from billing.selectors.usage import stated
from evenshare_core.domain.instants import from_us
from evenshare_core.money.fixed_point import to_text
from evenshare_core.money.revenue.records import price_to_micro
from evenshare_core.money.rows import LateStartRow
from evenshare_core.policies.promised_start import late_credit_micro
from scheduling.models import LeaseEvent


@dataclass(frozen=True, slots=True)
class LateCredit:
    """The credit for a late start.

    `hour`: the hour of the round that found the start late. `subject`: the job's id, and the number
    of the round that promised the start. `facts`: what the transfer states.
    """

    tenant_id: int
    hour: datetime
    subject: tuple[int, int]
    amount_micro: int
    facts: dict[str, Any]


def late_credits(pool_id: int, *, since: datetime | None, until: datetime) -> Iterator[LateCredit]:
    """Yield the credits for late starts that rounds in [since, until) found, oldest first.

    A late start that is worth less than half a micro-credit is left out. A single query.
    """
    events = LeaseEvent.objects.filter(
        pool_id=pool_id, kind=LeaseEvent.Kind.LATE_START, at__lt=until
    )
    if since is not None:
        events = events.filter(at__gte=since)
    rows = events.order_by("at", "number").values_list(
        "at", "round", "tenant_id", "job_id", "job__uid", "data"
    )
    for at, number, tenant, job, uid, data in rows:
        rate_micro, late_us = price_to_micro(data["rate"]), data["until_us"] - data["latest_us"]
        amount_micro = late_credit_micro(data["gpus"], rate_micro, late_us)
        if amount_micro:
            yield LateCredit(
                tenant,
                hour_of(at),
                (job, data["promised_round"]),
                amount_micro,
                {
                    "job": str(uid),
                    "gpu_type": data["gpu_type"],
                    "gpus": data["gpus"],
                    "rate": to_text(rate_micro),
                    "latest_at": from_us(data["latest_us"]).isoformat(),
                    "until": from_us(data["until_us"]).isoformat(),
                    "started": data["started"],
                    "promised_round": data["promised_round"],
                    "round": number,
                },
            )


def is_late_start(transfer: Transfer) -> bool:
    return transfer.code == Transfer.Code.LATE_START


def late_start_row(tenant: str, facts: Mapping[str, Any]) -> LateStartRow:
    """Return what the transfer of a credit states about the late start of a tenant's job."""
    return stated(
        LateStartRow,
        **{name: facts[name] for name in ("job", "gpu_type", "gpus", "started")},
        **{name: facts[name] for name in ("promised_round", "round")},
        tenant=tenant,
        rate=Decimal(facts["rate"]),
        latest_at=datetime.fromisoformat(facts["latest_at"]),
        until=datetime.fromisoformat(facts["until"]),
    )
