"""Provide a small pool whose lease events a test writes itself, in minutes of pool time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from billing.ledger import open_book, post_allowance
from billing.metering import Metered, Settled, meter_pool, settle_pool
from billing.models import Account, UsageLine
from billing.selectors.events import read_events
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.money.fixed_point import to_credits, to_micro, worst_case_micro
from evenshare_core.money.revenue.terms import Sweep
from scheduling.models import (
    GpuType,
    Job,
    Lease,
    LeaseEvent,
    LeaseTerm,
    Pool,
    PoolFence,
    Round,
)
from tenants.models import Budget, Tenant

# The counts that the summary of a round contains.
COUNTED = (
    "granted", "renewed", "ended", "waiting", "waiting_gpus", "capacity", "used", "idle",
)  # fmt: skip
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def at(minute: float) -> datetime:
    """Return the instant `minute` minutes after noon."""
    return NOON + timedelta(minutes=minute)


class Story:
    """Tenants a and b, each with a quota of 4 of 8 GPUs of type v100; leases take 30 minutes.

    A round is on time until `late_min` minutes after a term's expiry. Older events have None.
    """

    def __init__(
        self,
        quotas: Mapping[str, int] | None = None,
        capacity: int = 8,
        *,
        late_min: int | None = None,
    ) -> None:
        self.late_min = late_min
        quotas = {"a": 4, "b": 4} if quotas is None else quotas
        self.pool = Pool.objects.create(name="story", book="demo", lease_s=1800)
        self.type = GpuType.objects.create(name="v100")
        self.fence = PoolFence.objects.create(pool=self.pool, until=NOON)
        self.tenants = {
            name: Tenant.objects.create(slug=name, name=name, initials=name[:1].upper())
            for name in quotas
        }
        for tenant in self.tenants.values():
            Budget.objects.create(tenant=tenant, book="demo")
        self.book = open_book("demo")
        self.round = 0
        self.entitle(0, quotas, capacity)

    def entitle(
        self, minute: float, quotas: Mapping[str, int | tuple[int, int]], capacity: int
    ) -> None:
        rows = {
            str(self.tenants[name].pk): list(quota) if isinstance(quota, tuple) else [quota, None]
            for name, quota in quotas.items()
        }
        self._event("entitled", minute, {"gpu_type": "v100", "capacity": capacity, "quotas": rows})

    def grant(
        self, minute: float, tenant: str, *, own: int = 0, borrowed: int = 0, price: str = "0"
    ) -> Lease:
        owner = self.tenants[tenant]
        gpus = own + borrowed
        job = Job.objects.create(
            tenant=owner,
            pool=self.pool,
            name="train",
            submitted_at=at(minute),
            gpus=gpus,
        )
        lease = Lease.objects.create(
            pool=self.pool,
            tenant=owner,
            job=job,
            gpu_type=self.type,
            number=1,
            state=Lease.State.LAUNCHING,
            gpus=gpus,
            placement=[],
            granted_round=self.round + 1,
            granted_at=at(minute),
            expires_at=at(minute + 30),
            own=own,
            borrowed=borrowed,
            price=price,
        )
        self._term(lease, minute, "granted")
        return lease

    def start(self, minute: float, lease: Lease) -> None:
        lease.started_at = at(minute)
        lease.save()
        self._event("started", minute, self._figures(lease), lease)

    def run(self, minute: float, tenant: str, **terms: Any) -> Lease:
        lease = self.grant(minute, tenant, **terms)
        self.start(minute, lease)
        return lease

    def renew(
        self,
        minute: float,
        lease: Lease,
        *,
        own: int | None = None,
        borrowed: int | None = None,
        price: str | None = None,
    ) -> None:
        lease.term += 1
        lease.own = lease.own if own is None else own
        lease.borrowed = lease.borrowed if borrowed is None else borrowed
        lease.price = lease.price if price is None else price
        lease.save()
        self._term(lease, minute, "renewed")

    def end(self, minute: float, lease: Lease) -> None:
        lease.ended_at = at(minute)
        lease.state = Lease.State.ENDED
        lease.save()
        data = {"reason": "finished", "exit_code": 0, "started": lease.started_at is not None}
        self._event("ended", minute, data | {"gpu_type": "v100"}, lease)

    def post_round(self, minute: float, price: str = "1.000000") -> None:
        """Write a round that posts the next price. All earlier events are then known."""
        self.round += 1
        Round.objects.create(
            pool=self.pool,
            number=self.round,
            at=at(minute),
            wall_at=at(minute),
            token=1,
            policy="ltgf",
            policy_version="1",
            scale=60,
            snapshot_sha256="",
            decision_sha256="",
            snapshot_us=0,
            decide_us=0,
            summary={"reasons": {}} | dict.fromkeys(COUNTED, 0),
        )
        row = {"gpu_type": "v100", "price": price, "used": 8, "capacity": 8}
        prices = [row | {"base": "1.000000", "theta": "2.000"}]
        self._event("priced", minute, {"valid_from_round": self.round + 1, "prices": prices})
        self.looked(minute)

    def looked(self, minute: float) -> None:
        """Record that the scheduler checked the pool at this minute, with or without a round."""
        self.fence.last_checked_at, self.fence.next_round = at(minute), self.round + 1
        self.fence.save()

    def meter(self, limit: int = 5000) -> Metered:
        """Meter all events, in batches of `limit`."""
        total = Metered()
        while (batch := meter_pool(self.pool.pk, limit=limit)).events or batch.lines:
            total = Metered(total.events + batch.events, total.lines + batch.lines)
        return total

    def settle(self) -> Settled:
        return settle_pool(self.pool.pk)

    def allow(self, tenant: str, credits_: int) -> None:
        post_allowance(
            book=self.book,
            tenant_id=self.tenants[tenant].pk,
            amount_micro=credits_ * 1_000_000,
            effective_at=NOON,
            name="start",
        )

    def limit(self, tenant: str, credits_: int) -> None:
        Budget.objects.filter(tenant=self.tenants[tenant]).update(credit_limit=credits_)

    def balances(self) -> dict[str, str]:
        """Return the balances by tenant name (`operator` for the operator), without zeros."""
        rows = Account.objects.select_related("tenant").order_by("pk")
        return {
            (row.tenant.slug if row.tenant else "operator"): str(row.balance)
            for row in rows
            if row.balance
        }

    def budget(self, tenant: str) -> tuple[str, str]:
        """Return (spendable, reserved) of a tenant."""
        row = Budget.objects.get(tenant=self.tenants[tenant], book="demo")
        return str(row.spendable), str(row.reserved)

    def _figures(self, lease: Lease) -> dict[str, Any]:
        price = f"{lease.price}"
        return {
            "own": lease.own,
            "borrowed": lease.borrowed,
            "price": price,
            "gpu_type": "v100",
        }

    def _term(self, lease: Lease, minute: float, kind: str) -> None:
        term = LeaseTerm.objects.create(
            lease=lease,
            number=lease.term,
            round=self.round + 1,
            starts_at=at(minute),
            expires_at=at(minute + 30),
            own=lease.own,
            borrowed=lease.borrowed,
            price=lease.price,
        )
        term.refresh_from_db()
        budget = Budget.objects.get(tenant_id=lease.tenant_id, book="demo")
        worst = worst_case_micro(term.borrowed, to_micro(term.price), 1800 * 1_000_000)
        budget.reserved += to_credits(worst)
        # The engine reserved this amount, whatever the limit is now.
        if budget.credit_limit is not None:
            short = budget.reserved - budget.spendable - budget.credit_limit
            budget.overrun = max(budget.overrun, short)
        budget.save()
        lateness: dict[str, int] = {}
        if self.late_min is not None:
            lateness["expires_us"] = to_us(term.expires_at)
            lateness["late_us"] = self.late_min * 60 * 1_000_000
        self._event(kind, minute, self._figures(lease) | lateness, lease)

    def _event(
        self, kind: str, minute: float, data: dict[str, Any], lease: Lease | None = None
    ) -> None:
        LeaseEvent.objects.create(
            pool=self.pool,
            number=self.fence.next_event,
            kind=kind,
            at=at(minute),
            round=self.round,
            lease=lease,
            job_id=lease.job_id if lease else None,
            tenant_id=lease.tenant_id if lease else None,
            term=lease.term if lease else None,
            data=data,
        )
        self.fence.next_event += 1
        self.fence.save()


def lines_and_shares() -> list[tuple[Any, ...]]:
    """Return the meter's rows without ids; they are the same for the same events."""
    return [
        (
            line.lease_id,
            line.term,
            line.meter,
            line.gpus,
            to_micro(line.amount),
            line.ends_at,
            sorted(
                (
                    share.account.tenant_id or 0,
                    share.weight,
                    to_micro(share.amount),
                    share.lent_gpu_us,
                )
                for share in line.shares.all()
            ),
        )
        for line in UsageLine.objects.order_by("lease_id", "term", "meter").prefetch_related(
            "shares__account"
        )
    ]


def swept_at_once(pool_id: int) -> list[tuple[Any, ...]]:
    """Return the same rows from a sweep over all events at once, without a stored state."""
    sweep = Sweep()
    events = read_events(pool_id, after=0, limit=1_000_000)
    rows: list[tuple[Any, ...]] = []
    for term in [term for event in events for term in sweep.feed(event)]:
        if term.starts_us is None:
            continue
        head = (term.lease, term.term)
        ends_at = from_us(term.ends_us)
        if term.borrowed:
            paid = sorted((s.lender, s.weight, s.amount_micro, s.lent_gpu_us) for s in term.shares)
            rows.append((*head, "borrowed", term.borrowed, term.amount_micro, ends_at, paid))
        if term.own:
            rows.append((*head, "own", term.own, 0, ends_at, []))
    return sorted(rows, key=lambda row: row[:3])
