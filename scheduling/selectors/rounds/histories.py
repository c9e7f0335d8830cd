"""Use, quota and rho over the rounds of a pool: of one tenant, and of all visible tenants."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evenshare_core.fairness.rho import rho_of
from evenshare_core.units import SECOND_US
from scheduling.selectors.visibility import Visibility, VisibleTenant
from tenants.sql import fetch_rows

POINTS = 200


@dataclass(frozen=True, slots=True)
class ClaimHistoryPoint:
    number: int
    at: datetime
    wall_at: datetime
    scale: int
    gpu_type: str
    use: int
    quota: int
    rho: float | None
    received_gpu_s: float
    deserved_gpu_s: float


@dataclass(frozen=True, slots=True)
class TenantCourse:
    """A tenant's values over the rounds of a `PoolHistory`.

    `use` and `quota` cover the requested GPU type, or all types. `quota` includes trades; `swapped`
    is the part from trades, negative if they take GPUs. `rho` and `sums` always cover all types,
    because the sums of one type refer to quotas before trades.

    `tenant` is None for the sum of all tenants that the viewer may not see, which has no `rho` and
    no `sums`. `rho` is None if no GPU-time was deserved so far, and for rounds without a row of the
    tenant. `sums`: GPU-seconds received and deserved since the pool started, 0 for rounds without a
    row of the tenant.
    """

    tenant: VisibleTenant | None
    use: tuple[int, ...]
    rho: tuple[float | None, ...]
    sums: tuple[tuple[float, float], ...] = ()
    quota: tuple[int, ...] = ()
    swapped: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolHistory:
    """Some rounds of a pool, oldest first, and the use of each tenant after each of them."""

    at: tuple[datetime, ...]
    tenants: tuple[TenantCourse, ...]


# At most `points` rounds are read, each by its number. A day of a pool at scale 1 has 8,640 rounds,
# and expanding all their shares takes a second. LIMIT keeps the planner from doing so.
_ROUNDS = """
WITH span AS MATERIALIZED (
    SELECT (SELECT number FROM scheduling_round
            WHERE pool_id = %(pool)s AND at >= %(since)s ORDER BY at LIMIT 1) AS first,
           (SELECT number FROM scheduling_round
            WHERE pool_id = %(pool)s AND at < coalesce(%(until)s::timestamptz, 'infinity')
            ORDER BY at DESC LIMIT 1) AS last
), step AS MATERIALIZED (
    SELECT first, last, greatest(1, ceil((last - first + 1) / %(points)s::numeric)::bigint) AS by
    FROM span WHERE first <= last
)
SELECT r.number, r.at, r.wall_at, r.scale, {columns}
FROM step
CROSS JOIN LATERAL generate_series(first + (last - first) %% by, last, by) wanted(number)
CROSS JOIN LATERAL (
    SELECT * FROM scheduling_round
    WHERE pool_id = %(pool)s AND number = wanted.number LIMIT 1
) r
CROSS JOIN LATERAL jsonb_to_recordset(r.shares) AS s(
    tenant bigint, gpu_type text, own int, borrowed int, quota int, swapped int, rho_before float,
    alloc_gpu_us float, fair_gpu_us float
)
"""
_CLAIM = (
    _ROUNDS.format(
        columns="s.gpu_type, s.own + s.borrowed, s.quota + coalesce(s.swapped, 0), s.rho_before,"
        " s.alloc_gpu_us / 1e6, s.fair_gpu_us / 1e6"
    )
    + "WHERE s.tenant = %(tenant)s ORDER BY r.number, s.gpu_type"
)
_POOL = (
    _ROUNDS.format(
        columns="s.tenant, s.gpu_type, s.own + s.borrowed, s.quota + coalesce(s.swapped, 0),"
        " coalesce(s.swapped, 0), s.alloc_gpu_us::float, s.fair_gpu_us::float"
    )
    + "ORDER BY r.number, s.tenant"
)


def claim_history(
    pool_id: int,
    tenant_id: int,
    *,
    since: datetime,
    until: datetime | None = None,
    points: int = POINTS,
) -> list[ClaimHistoryPoint]:
    """Return a tenant's claims over the rounds of [since, until), oldest first. A single query."""
    given = {
        "pool": pool_id,
        "tenant": tenant_id,
        "since": since,
        "until": until,
        "points": points,
    }
    return [ClaimHistoryPoint(*row) for row in fetch_rows(_CLAIM, given)]


def pool_history(
    pool_id: int,
    visibility: Visibility,
    *,
    since: datetime,
    until: datetime | None = None,
    points: int = POINTS,
    gpu_type: str = "",
) -> PoolHistory:
    """Return each tenant's use and quota after the rounds of [since, until). A single query.

    `gpu_type`: use and quota are of this type; of all types if empty.
    """
    rows = fetch_rows(_POOL, {"pool": pool_id, "since": since, "until": until, "points": points})
    at = tuple(dict.fromkeys(row[1] for row in rows))
    place = {instant: index for index, instant in enumerate(at)}
    sums: dict[int | None, _Sums] = {}
    for _, instant, _, _, tenant, of_type, *gpus, received, deserved in rows:
        seen = tenant if tenant is not None and visibility.of(tenant) else None
        one = sums.setdefault(seen, _Sums())
        one.add_gpu_time(place[instant], received, deserved)
        if gpu_type in ("", of_type):
            one.add_gpus(place[instant], *gpus)
    courses = [
        TenantCourse(
            None if tenant is None else visibility.of(tenant),
            tuple(one.use[index] for index in range(len(at))),
            tuple(None if tenant is None else one.rho(index) for index in range(len(at))),
            () if tenant is None else tuple(map(one.gpu_s, range(len(at)))),
            tuple(one.quota[index] for index in range(len(at))),
            tuple(one.swapped[index] for index in range(len(at))),
        )
        for tenant, one in sums.items()
    ]
    # The sum of hidden tenants comes last.
    courses.sort(key=lambda one: (one.tenant is None, one.tenant.number if one.tenant else 0))
    return PoolHistory(at, tuple(courses))


def joined(parts: Iterable[PoolHistory]) -> PoolHistory:
    """Join consecutive histories; a tenant that is missing in a part has zeros there."""
    parts = list(parts)
    tenants = {_key(one): one.tenant for part in parts for one in part.tenants}
    order = sorted(
        tenants, key=lambda key: (key is None, one.number if (one := tenants[key]) else 0)
    )
    courses = []
    for key in order:
        use: list[int] = []
        quota: list[int] = []
        swapped: list[int] = []
        rho: list[float | None] = []
        sums: list[tuple[float, float]] = []
        for part in parts:
            course = next((one for one in part.tenants if _key(one) == key), None)
            use += course.use if course else [0] * len(part.at)
            quota += course.quota if course else [0] * len(part.at)
            swapped += course.swapped if course else [0] * len(part.at)
            rho += course.rho if course else [None] * len(part.at)
            if key is not None:
                sums += course.sums if course else [(0.0, 0.0)] * len(part.at)
        courses.append(
            TenantCourse(
                tenants[key], tuple(use), tuple(rho), tuple(sums), tuple(quota), tuple(swapped)
            )
        )
    return PoolHistory(tuple(at for part in parts for at in part.at), tuple(courses))


def _key(one: TenantCourse) -> int | None:
    return None if one.tenant is None else one.tenant.id


class _Sums:
    """A tenant's sums by the index of the round."""

    def __init__(self) -> None:
        self.use: Counter[int] = Counter()
        self.quota: Counter[int] = Counter()
        self.swapped: Counter[int] = Counter()
        self._received: Counter[int] = Counter()
        self._deserved: Counter[int] = Counter()

    def add_gpus(self, place: int, use: int, quota: int, swapped: int) -> None:
        self.use[place] += use
        self.quota[place] += quota
        self.swapped[place] += swapped

    def add_gpu_time(self, place: int, received: Any, deserved: Any) -> None:
        self._received[place] += received or 0
        self._deserved[place] += deserved or 0

    def gpu_s(self, place: int) -> tuple[float, float]:
        return self._received[place] / SECOND_US, self._deserved[place] / SECOND_US

    def rho(self, place: int) -> float | None:
        return rho_of(self._received[place], self._deserved[place])
