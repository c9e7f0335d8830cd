"""A tenant's throughput with the shares of other tenants, and with its trades, by the last round.

Of other tenants, only the GPUs of their shares and their quotas are used, as on the pool's page.
Tenants that the viewer may not see are left out.
"""

from dataclasses import dataclass
from functools import lru_cache

from evenshare_core.fairness.others_shares import (
    ComparedShare,
    QuotaWork,
    quota_work,
    with_others_shares,
)
from scheduling.models import Profile, Round
from scheduling.selectors.rounds.stored import ReplayError, round_values
from scheduling.selectors.tenants.dashboard import DecidedRound
from scheduling.selectors.visibility import Visibility, VisibleTenant


@dataclass(frozen=True, slots=True)
class ShareOfOther:
    """The throughput of one of the tenant's job types with the share of another tenant."""

    tenant: VisibleTenant
    throughput: float


@dataclass(frozen=True, slots=True)
class JobTypeShares:
    """A job type's throughput with its own share and with each visible other share.

    `profile` is empty for jobs without a job type.
    """

    profile: str
    own: float
    others: tuple[ShareOfOther, ...]


@dataclass(frozen=True, slots=True)
class SharesCompared:
    """The comparisons of a round; `work` is None if no trade of the tenant is in force."""

    number: int
    rows: tuple[JobTypeShares, ...]
    work: QuotaWork | None


def compare_shares(
    pool_id: int, number: int, tenant_id: int, visibility: Visibility
) -> SharesCompared | None:
    """Return a tenant's comparisons in a round, or None if its bytes are no longer kept."""
    rounds = Round.objects.only("pool_id", "number", "decision_sha256")
    row = rounds.filter(pool_id=pool_id, number=number).first()
    if row is None:
        return None
    compared, work = _compared(DecidedRound(row), tenant_id)
    wanted = [one.profile for one in compared]
    names = dict(Profile.objects.filter(pk__in=wanted).values_list("pk", "name")) if wanted else {}
    rows = tuple(
        JobTypeShares(names.get(one.profile, ""), one.own, _others(one, visibility))
        for one in compared
    )
    return SharesCompared(number, tuple(one for one in rows if one.others), work)


@lru_cache(maxsize=32)
def _compared(
    kept: DecidedRound, tenant_id: int
) -> tuple[tuple[ComparedShare, ...], QuotaWork | None]:
    """Return the comparisons of a stored round; cached, because open dashboards repeat them."""
    try:
        snapshot, decision = round_values(kept.round)
    except ReplayError:
        return (), None
    return (
        with_others_shares(snapshot, decision, tenant_id),
        quota_work(snapshot, decision, tenant_id),
    )


def _others(one: ComparedShare, visibility: Visibility) -> tuple[ShareOfOther, ...]:
    shown = [
        ShareOfOther(seen, other.throughput)
        for other in one.others
        if (seen := visibility.of(other.tenant)) is not None
    ]
    return tuple(sorted(shown, key=lambda row: row.tenant.number))
