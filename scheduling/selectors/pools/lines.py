"""Facts that every page shows of its pool: last round, clock, size. A single query."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evenshare_core.fairness.rho import rho_of
from evenshare_core.policies import registry
from evenshare_core.policies.options import OptionError, Options
from scheduling.models import Pool, PoolClock
from tenants.sql import fetch_rows

_FACTS = """
SELECT p.id, p.name, p.policy, p.round_s, p.lease_s,
       greatest(p.lease_s, p.most_lease_s), p.book,
       c.anchor_wall, c.anchor_pool, c.scale, c.paused, c.pause_reason,
       clock_timestamp(), f.last_checked_at,
       r.number, r.at, r.wall_at,
       (SELECT count(*) FROM scheduling_node n WHERE n.pool_id = p.id),
       (SELECT coalesce(sum(n.gpus), 0) FROM scheduling_node n WHERE n.pool_id = p.id),
       (SELECT coalesce(bool_and(t.name = 'cpu'), false)
        FROM scheduling_node n JOIN scheduling_gputype t ON t.id = n.gpu_type_id
        WHERE n.pool_id = p.id),
       p.options::text, p.grace_s,
       coalesce(r.summary->'reasons' ? 'promised', false), p.executor
FROM scheduling_pool p
JOIN scheduling_poolclock c ON c.pool_id = p.id
JOIN scheduling_poolfence f ON f.pool_id = p.id
LEFT JOIN LATERAL (
    SELECT number, at, wall_at, summary FROM scheduling_round
    WHERE pool_id = p.id ORDER BY number DESC LIMIT 1
) r ON true
"""


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """A pool at the wall time `wall`; `number`, `at` and `wall_at` belong to its last round.

    `checked_at`: the last grid instant (pool time) that was processed, with a round or not.
    `options`: the options set for its policy, as JSON. `grace_s`: the notice before a stop.
    `longest_lease_s`: the longest term that a policy may give. `has_promises`: after the last
    round, jobs waited for a promised start.
    """

    id: int
    name: str
    policy: str
    round_s: int
    lease_s: int
    longest_lease_s: int
    book: str
    clock: PoolClock
    wall: datetime
    checked_at: datetime | None
    number: int | None
    at: datetime | None
    wall_at: datetime | None
    nodes: int
    gpus: int
    cpus_only: bool = False
    options: str = "{}"
    grace_s: int = 0
    has_promises: bool = False
    executor: str = ""

    @property
    def policy_options(self) -> Options | None:
        """The options of its policy; None if it is not installed, or they are invalid."""
        try:
            return registry.options(self.policy, json.loads(self.options))
        except (registry.UnknownPolicyError, OptionError):
            return None

    @property
    def unit(self) -> str:
        """Return the unit of counts: a slot if the pool's machines have no GPUs, else a GPU."""
        return "slot" if self.cpus_only else "GPU"


def pool_facts(pool_id: int) -> PoolFacts | None:
    return next(iter(_facts("WHERE p.id = %s", pool_id)), None)


def pools_named(names: Iterable[str]) -> list[PoolFacts]:
    """Return the facts of the pools of these names, oldest first. A single query."""
    return _facts("WHERE p.name = ANY(%s) ORDER BY p.id", sorted(set(names)))


def pools_of_book(book: str) -> list[PoolFacts]:
    """Return the facts of the pools that charge to a book, oldest first. A single query."""
    return _facts("WHERE p.book = %s ORDER BY p.id", book)


def _facts(where: str, value: int | str | list[str]) -> list[PoolFacts]:
    return [_read_facts(row) for row in fetch_rows(_FACTS + where, [value])]


def _read_facts(row: tuple[Any, ...]) -> PoolFacts:
    id_, name, policy, round_s, lease_s, longest_lease_s, book, *rest = row
    anchor_wall, anchor_pool, scale, paused, pause_reason, *figures = rest
    clock = PoolClock(
        pool_id=id_,
        anchor_wall=anchor_wall,
        anchor_pool=anchor_pool,
        scale=scale,
        paused=paused,
        pause_reason=pause_reason,
    )
    return PoolFacts(id_, name, policy, round_s, lease_s, longest_lease_s, book, clock, *figures)


def pool_id_named(name: str) -> int | None:
    return Pool.objects.filter(name=name).values_list("id", flat=True).first()


def find_pool(pool_id: int) -> Pool | None:
    """Return a pool's row, or None. A single query."""
    return Pool.objects.filter(pk=pool_id).first()


def all_pool_names() -> list[str]:
    """Return the names of all pools, oldest first. A single query."""
    return list(Pool.objects.order_by("id").values_list("name", flat=True))


def no_pool_text(name: str) -> str:
    return f"there is no pool {name}; there are {', '.join(all_pool_names()) or 'none'}"


def pool_names_of_tenant(*tenant_ids: int) -> list[str]:
    """Return names of pools in which tenants have or had quota, oldest first. A single query."""
    rows = Pool.objects.filter(quotas__tenant_id__in=tenant_ids).order_by("id")
    return list(rows.distinct().values_list("name", flat=True))


def all_books() -> list[str]:
    """Return the books to which the pools charge. A single query."""
    return list(Pool.objects.values_list("book", flat=True).distinct())


def first_pool_id() -> int | None:
    """Return the id of the oldest pool, which the demo shows."""
    return Pool.objects.order_by("id").values_list("id", flat=True).first()


def all_pool_ids() -> list[int]:
    """Return the ids of all pools, oldest first."""
    return list(Pool.objects.order_by("id").values_list("id", flat=True))


@dataclass(frozen=True, slots=True)
class PoolSoFar:
    """A pool's totals since it started, for the front page.

    The numbers of GPUs and of waiting jobs are those after the last round.
    """

    leases: int
    terms: int
    jobs_done: int
    used: int
    idle: int
    waiting: int
    tenants: int
    least_received_gpu_s: float | None
    least_deserved_gpu_s: float | None

    @property
    def least_rho(self) -> float | None:
        """The lowest rho of a tenant; None if no tenant deserved anything yet."""
        return rho_of(self.least_received_gpu_s or 0.0, self.least_deserved_gpu_s or 0.0)


_SO_FAR = """
SELECT (SELECT count(*) FROM scheduling_lease WHERE pool_id = %(pool)s),
       (SELECT coalesce(sum(terms), 0) FROM scheduling_job WHERE pool_id = %(pool)s),
       (SELECT count(*) FROM scheduling_job WHERE pool_id = %(pool)s AND ended_at IS NOT NULL),
       coalesce((r.summary->>'used')::int, 0),
       greatest(coalesce((r.summary->>'idle')::int, 0), 0),
       coalesce((r.summary->>'waiting')::int, 0),
       (SELECT count(DISTINCT tenant_id) FROM tenants_quota WHERE pool_id = %(pool)s),
       least.alloc_gpu_us / 1e6, least.fair_gpu_us / 1e6
FROM (SELECT 1) one
LEFT JOIN LATERAL (
    SELECT summary, shares FROM scheduling_round
    WHERE pool_id = %(pool)s ORDER BY number DESC LIMIT 1
) r ON true
LEFT JOIN LATERAL (
    SELECT s.alloc_gpu_us, s.fair_gpu_us
    FROM jsonb_to_recordset(r.shares) s(
        tenant bigint, rho_before float, alloc_gpu_us float, fair_gpu_us float
    )
    WHERE s.rho_before IS NOT NULL ORDER BY s.rho_before, s.tenant LIMIT 1
) least ON true
"""


def pool_so_far(pool_id: int) -> PoolSoFar:
    """Return a pool's totals since it started. Counts whole tables: for the front page only."""
    (row,) = fetch_rows(_SO_FAR, {"pool": pool_id})
    return PoolSoFar(*row)
