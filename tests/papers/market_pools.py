"""Pools and jobs of Astraea-online: the example of the paper, and random ones from a seed."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

from evenshare_research.market.gains import _charges
from evenshare_research.market.model import (
    OPERATOR,
    BidUtility,
    ConvexUtility,
    LinearUtility,
    MarketJob,
    MarketPool,
    MarketServer,
    Owner,
    Utility,
)
from evenshare_research.market.rounds import MarketRound

PAPER_F = LinearUtility(-2, 100)
# Four servers with 2 workers and 1 PS; two users with 4 workers and 2 PSs (4.2).
PAPER_POOL = MarketPool(
    [MarketServer(2, 1)] * 4, [Owner(1, 4, 2), Owner(2, 4, 2)], 1, 1, 16_000, 16_000
)


def paper_job(number: int, tenant: int, chunks: int) -> MarketJob:
    """Return a job with E = 2, M = 1, r = 3; n = 1 on one server, 0.5 on several."""
    return MarketJob(number, tenant, 3, 2, chunks, 1, 1.0, 0.0, 0.5, PAPER_F)


def seeded_case(seed: int) -> tuple[MarketPool, list[MarketJob], int]:
    """Return a pool, its jobs and the slots of a round; times have short binary fractions."""
    draw = random.Random(seed)  # noqa: S311 - a seeded case, not a secret
    has_ps = draw.random() < 0.85
    servers = [
        MarketServer(draw.randint(0, 4), draw.randint(0, 3) if has_ps else 0)
        for _ in range(draw.randint(1, 5))
    ]
    tenants = draw.randint(1, 3)
    workers, ps = sum(row.workers for row in servers), sum(row.ps for row in servers)
    if not workers:
        servers[0], workers = MarketServer(2, servers[0].ps), 2
    owners = [
        Owner(tenant + 1, workers // tenants, ps // tenants) for tenant in range(tenants)
    ]  # the remaining quota has no owner
    pool = MarketPool(
        servers, owners, draw.randint(1, 4), draw.randint(1, 4),
        draw.choice([1000, 2000, 4500, 16_000, 64_000]),
        draw.choice([1000, 2000, 16_000]),
    )  # fmt: skip
    slots = draw.randint(2, 9)
    jobs = [
        _seeded_job(draw, number, draw.randint(1, tenants)) for number in range(draw.randint(1, 7))
    ]
    return pool, jobs, slots


def _seeded_job(draw: random.Random, number: int, tenant: int) -> MarketJob:
    job = MarketJob(
        number, tenant, draw.choice([0, 1, 1, 2.5]), draw.randint(1, 3), draw.randint(1, 6),
        draw.randint(1, 2), draw.choice([0.25, 0.5, 1.0]), draw.choice([0, 0.125]),
        draw.choice([0, 0.125, 0.5, 1.0]), PAPER_F,
    )  # fmt: skip
    return replace(job, utility=_seeded_utility(draw, job.work(centralised=True)))


def _seeded_utility(draw: random.Random, work: Fraction) -> Utility:
    kind = draw.choice(["linear", "linear", "convex", "bid"])
    if kind == "linear":
        return LinearUtility(-draw.choice([0.0, 0.5, 1.0, 4.0]), draw.choice([2.0, 10.0, 60.0]))
    if kind == "convex":
        return ConvexUtility(draw.choice([5.0, 40.0]), draw.choice([1.0, 1.5, 2.0]))
    return BidUtility(draw.choice([0.5, 2.0, 5.0]), float(work))


def exact_income(row: MarketRound, slots: range) -> dict[int, Fraction]:
    """Return the income of each owner in these slots by (2), in micro-credits, unrounded."""
    income: dict[int, Fraction] = defaultdict(Fraction)
    for schedule in row.borrowed:
        for charge in _charges(row, schedule):
            total = sum(charge.idle.values())
            if charge.slot in slots and charge.amount_micro:
                for owner, idle in (charge.idle if total else {OPERATOR: 1}).items():
                    income[owner] += Fraction(charge.amount_micro * idle, total or 1)
    return dict(income)
