"""The use of a tenant's quota: its own use, kept, lent, or lendable but not lent.

The sums are exact, over the steps at which quotas and GPUs in use change. At an instant, for one
GPU type:

| name | meaning | GPUs |
|---|---|---|
| quota | the tenant's entitlement | q |
| own | its own GPUs of running terms, at most its quota | u |
| kept | idle and not lent, by its own limit or in mode RESERVE | q - u - l |
| lendable | idle quota that it lends, as in `evenshare_core.money.revenue.idle` | l |
| lent | its part of the borrowed GPUs: l / L x min(B, L) | |
| free | its part of the GPUs that are lendable and free | l / L x min(F, L - B) |
| without GPU | lendable quota without a GPU: quotas exceed the GPUs | the rest |

L is the lendable idle quota of all tenants, with unallocated capacity. B is the number of borrowed
GPUs, F the number of free GPUs. So quota = own + kept + lent + free + without GPU, exactly.

Source: Astraea-online (TC 2022), eq. (2), whose l / L divides the payments of borrowers.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import attrgetter
from typing import NamedTuple

from evenshare_core.money.revenue.idle import OPERATOR, LendableQuota


class EntitledStep(NamedTuple):
    """The GPUs of the type, and every tenant's quota, from an instant on."""

    at_us: int
    capacity: int
    quotas: Mapping[int, LendableQuota]


class UseStep(NamedTuple):
    """A change of a tenant's own and borrowed GPUs in use, at an instant."""

    at_us: int
    tenant: int
    own: int
    borrowed: int


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """The use of a tenant's quota, in GPU-microseconds; the parts sum to `quota_us`."""

    quota_us: int = 0
    own_us: int = 0
    kept_us: int = 0
    lent_us: Fraction = Fraction(0)
    free_us: Fraction = Fraction(0)
    without_gpu_us: Fraction = Fraction(0)


def quota_use(
    tenant: int,
    quotas: Iterable[EntitledStep],
    uses: Iterable[UseStep],
    *,
    since_us: int,
    until_us: int,
) -> QuotaUse:
    """Return the use of a tenant's quota of one GPU type in [since, until).

    Steps may be in any order. Steps before `since_us` give the initial state, steps from `until_us`
    on are ignored. Tenant `OPERATOR` is the unallocated capacity.

    Raises:
        ValueError: `until_us` is before `since_us`.
    """
    if until_us < since_us:
        raise ValueError("a period ends before it begins")
    present = _Present(tenant)
    every: list[EntitledStep | UseStep] = [*quotas, *uses]
    every.sort(key=attrgetter("at_us"))
    now_us = since_us
    for step in every:
        if step.at_us >= until_us:
            break
        if step.at_us > now_us:
            present.pass_time(step.at_us - now_us)
            now_us = step.at_us
        present.take(step)
    present.pass_time(until_us - now_us)
    return present.result()


def quota_time(quotas: Sequence[EntitledStep], *, since_us: int, until_us: int) -> dict[int, int]:
    """Return each tenant's quota of one GPU type in [since, until), in GPU-microseconds.

    `quotas` must be in order of time. `OPERATOR` has the unallocated capacity; zeros are left out.
    """
    sums: dict[int, int] = defaultdict(int)
    for place, step in enumerate(quotas):
        following = quotas[place + 1].at_us if place + 1 < len(quotas) else until_us
        span_us = min(following, until_us) - max(step.at_us, since_us)
        if span_us <= 0:
            continue
        for tenant, (gpus, _) in step.quotas.items():
            sums[tenant] += gpus * span_us
        sums[OPERATOR] += _unowned(step.capacity, step.quotas) * span_us
    return {tenant: gpu_us for tenant, gpu_us in sums.items() if gpu_us}


def _unowned(capacity: int, quotas: Mapping[int, LendableQuota]) -> int:
    return max(capacity - sum(gpus for gpus, _ in quotas.values()), 0)


class _Present:
    """The state between two steps, and the sums of one tenant so far."""

    def __init__(self, tenant: int) -> None:
        self._tenant = tenant
        self._capacity = 0
        self._quotas: Mapping[int, LendableQuota] = {}
        self._own: dict[int, int] = defaultdict(int)
        self._own_gpus = self._borrowed = self._lendable = 0
        self._quota_us = self._own_us = self._kept_us = self._lendable_us = 0
        # The key is the lendable quota of all lenders, by which the sums are divided at the end.
        self._lent: dict[int, int] = defaultdict(int)
        self._free: dict[int, int] = defaultdict(int)

    def take(self, step: EntitledStep | UseStep) -> None:
        if isinstance(step, EntitledStep):
            self._capacity, self._quotas = step.capacity, step.quotas
            lenders = {OPERATOR, *step.quotas}
            self._lendable = sum(self._lendable_of(lender) for lender in lenders)
            return
        self._borrowed += step.borrowed
        if step.own:
            before = self._lendable_of(step.tenant)
            self._own[step.tenant] += step.own
            self._own_gpus += step.own
            self._lendable += self._lendable_of(step.tenant) - before

    def pass_time(self, span_us: int) -> None:
        quota, used = self._quota_of(self._tenant), self._used_of(self._tenant)
        lendable = self._lendable_of(self._tenant)
        self._quota_us += quota * span_us
        self._own_us += used * span_us
        self._kept_us += (quota - used - lendable) * span_us
        if not lendable:
            return
        of_all = self._lendable
        borrowed = min(self._borrowed, of_all)
        free = max(self._capacity - self._own_gpus - self._borrowed, 0)
        self._lendable_us += lendable * span_us
        self._lent[of_all] += lendable * borrowed * span_us
        self._free[of_all] += lendable * min(free, of_all - borrowed) * span_us

    def result(self) -> QuotaUse:
        lent, free = _over(self._lent), _over(self._free)
        return QuotaUse(
            quota_us=self._quota_us,
            own_us=self._own_us,
            kept_us=self._kept_us,
            lent_us=lent,
            free_us=free,
            without_gpu_us=self._lendable_us - lent - free,
        )

    def _quota_of(self, tenant: int) -> int:
        if tenant == OPERATOR:
            return _unowned(self._capacity, self._quotas)
        return self._quotas.get(tenant, (0, 0))[0]

    def _used_of(self, tenant: int) -> int:
        return min(self._own[tenant], self._quota_of(tenant))

    def _lendable_of(self, tenant: int) -> int:
        idle = self._quota_of(tenant) - self._used_of(tenant)
        most = None if tenant == OPERATOR else self._quotas.get(tenant, (0, 0))[1]
        return idle if most is None else min(idle, most)


def _over(sums: Mapping[int, int]) -> Fraction:
    return sum((Fraction(total, of_all) for of_all, total in sums.items()), Fraction(0))
