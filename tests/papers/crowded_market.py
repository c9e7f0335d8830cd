"""Draw crowded market rounds: owners' jobs wait while borrowed leases end one by one."""

from __future__ import annotations

import random
from collections import Counter

from msgspec.structs import replace

from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.utilities import Utility, UtilityKind
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.market.policy import POLICY
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, SimJob, make_nodes
from evenshare_core.units import CREDIT_MICRO, HOUR_US, SECOND_US
from tests.unit.core.snapshots import AT_US, job, lease, snapshot

TENANTS = (1, 2, 3)
GPUS = 8  # GPUs of a node


def crowded_round(seed: int) -> Snapshot:
    """Draw two to five nodes, nearly full of leases; some end now, most are borrowed."""
    rng = random.Random(seed)  # noqa: S311 - a seeded pool, not a secret
    nodes = dict.fromkeys(range(1, rng.randrange(3, 7)), GPUS)
    quotas = {tenant: rng.randrange(GPUS * len(nodes) // 2 + 1) for tenant in TENANTS}
    jobs, leases = _running(rng, list(nodes), quotas)
    jobs += [
        job(len(jobs) + one, rng.choice((1, 2, 4, 4, 6, 8)), tenant=rng.choice(TENANTS))
        for one in range(1, rng.randrange(2, 11))
    ]
    bids = (0, rng.randrange(2 * CREDIT_MICRO), 5 * CREDIT_MICRO)
    utilities = [
        Utility(row.id, UtilityKind.BID, rng.choice(bids)) for row in jobs if rng.random() < 0.8
    ]
    asked = snapshot(
        jobs, leases, nodes=nodes,
        quotas=[Entitlement(tenant, "v100", gpus) for tenant, gpus in quotas.items()],
        price_micro=rng.randrange(CREDIT_MICRO), policy=POLICY.name,
        policy_version=POLICY.version,
        options={"theta": "fixed", "default_bid": rng.choice((1.0, 3.0))},
    )  # fmt: skip
    return replace(asked, utilities=tuple(utilities))


def _running(
    rng: random.Random, nodes: list[int], quotas: dict[int, int]
) -> tuple[list[Job], list[Lease]]:
    used: Counter[int] = Counter()
    jobs, leases = list[Job](), list[Lease]()
    for node in nodes:
        room = GPUS
        while room and rng.random() < 0.95:
            gpus, tenant, number = rng.randrange(1, room + 1), rng.choice(TENANTS), len(jobs) + 1
            room -= gpus
            own = min(gpus, max(0, quotas[tenant] - used[tenant])) if rng.random() < 0.2 else 0
            used[tenant] += own
            ends_us = AT_US + rng.choice((0, rng.randrange(HOUR_US), rng.randrange(HOUR_US)))
            jobs.append(job(number, gpus, tenant=tenant))
            leases.append(
                lease(
                    number, number, (node, gpus), tenant=tenant, own=own, borrowed=gpus - own,
                    expires_us=ends_us,
                )
            )  # fmt: skip
    return jobs, leases


def owners_waits(seed: int, rounds: int = 240) -> list[int]:
    """Return by round how long the owner's first queued job has waited, in us; leases last an hour.

    A round runs every minute. A single tenant owns the pool, and two tenants borrow. The wait
    starts when the job is first in the queue and some node has enough GPUs that are not held within
    quota.
    """
    rng = random.Random(seed)  # noqa: S311 - a seeded pool, not a secret
    rules = Rules("market", {"theta": "fixed"}, round_us=60 * SECOND_US, lease_us=HOUR_US)
    quotas = tuple(Entitlement(one, "v100", gpus) for one, gpus in ((1, 24), (2, 0), (3, 0)))
    cluster = Cluster(make_nodes({"v100": 3}, GPUS), quotas, {"v100": (CREDIT_MICRO, 2000)})
    jobs = tuple(
        SimJob(
            number, rng.choice(TENANTS), rng.choice((1, 2, 3, 4, 8)), rng.randrange(4 * HOUR_US),
            rng.randrange(1, 3 * HOUR_US),
            utility=Utility(number, UtilityKind.BID, rng.randrange(9 * CREDIT_MICRO)),
        )
        for number in range(1, 60)
    )  # fmt: skip
    state = SimulationState(cluster, jobs, rules)
    since: dict[int, int] = {}
    waits = []
    for number in range(rounds):
        state.advance(number * rules.round_us)
        state.apply(decide_round(state.snapshot()))
        after = state.snapshot()
        held = {row.job for row in after.leases}
        queue = [row for row in after.jobs if row.tenant == 1 and row.id not in held]
        for first in sorted(queue, key=arrival_order)[:1]:
            if _most_left(after) < first.gpus:
                since.pop(first.id, None)
            else:
                waits.append(after.at_us - since.setdefault(first.id, after.at_us))
    return waits


def _most_left(after: Snapshot) -> int:
    """Return the largest number of GPUs on one node that are not held within quota."""
    room = {node.id: node.gpus for node in after.nodes}
    for row in after.leases:
        for node, gpus in row.placement:
            room[node] -= gpus if row.own else 0
    return max(room.values())
