"""Store rounds whose decision violates a promise, after the real rounds."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from datetime import timedelta

from msgspec.structs import replace

from evenshare_core.domain.decision import Decision, Ideal
from evenshare_core.domain.measured_speeds import MeasuredProfile, MeasuredSpeed
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import canonical_bytes, decode, sha256_hex
from evenshare_core.fairness.certificate import plain
from evenshare_core.policies.base import certify_round
from evenshare_core.units import CREDIT_MICRO
from scheduling.models import Round, RoundBlob
from scheduling.selectors.rounds.stored import round_bytes
from tenants.scopes import engine_scope
from tests.functional.pool_stage import Stage, last_round

Change = Callable[[Snapshot, Decision], tuple[Snapshot, Decision]]


def plant(there: Stage, change: Change) -> Round:
    """Store another round with the changed bytes of the last one, and the certificate for them."""
    last = last_round(there)
    raw = round_bytes(last)
    snapshot, decision = change(decode(raw[0], Snapshot), decode(raw[1], Decision))
    pool, number = last.pool_id, last.number + 1
    snapshot = replace(snapshot, number=number)
    stored = canonical_bytes(snapshot), canonical_bytes(decision)
    with engine_scope(pool):
        RoundBlob.objects.create(
            day=last.wall_at.date(),
            pool_id=pool,
            number=number,
            snapshot=zlib.compress(stored[0]),
            decision=zlib.compress(stored[1]),
        )
        return Round.objects.create(
            pool_id=pool,
            number=number,
            at=last.at + timedelta(seconds=1),
            wall_at=last.wall_at,
            token=last.token,
            policy=snapshot.policy,
            policy_version=snapshot.policy_version,
            scale=last.scale,
            snapshot_sha256=sha256_hex(stored[0]),
            decision_sha256=sha256_hex(stored[1]),
            snapshot_us=0,
            decide_us=0,
            summary=last.summary,
            shares=last.shares,
            certificate=plain(certify_round(snapshot, decision)),
        )


def envious(snapshot: Snapshot, decision: Decision) -> tuple[Snapshot, Decision]:
    """Change to a cooperative policy: GPUs follow quotas, but the first tenant gets half a GPU."""
    weights = {row.tenant: row.gpus for row in snapshot.entitlements}
    first = min(weights)
    jobs = tuple(replace(job, gpus=8) for job in snapshot.jobs)
    ideals = tuple(
        Ideal(tenant, 0, "v100", 0.5 if tenant == first else gpus)
        for tenant, gpus in weights.items()
    )
    return replace(snapshot, policy="oef", jobs=jobs), replace(decision, ideals=ideals)


def unfair(snapshot: Snapshot, decision: Decision) -> tuple[Snapshot, Decision]:
    """In a pool of two types, give the first tenant the slow GPUs, and others the fast GPUs."""
    rows = sorted({(row.tenant, row.profile) for row in decision.ideals})
    first, *rest = rows
    ideals = [Ideal(*first, "k80", 1.0)]
    ideals += [Ideal(*row, "v100", 4 / len(rest)) for row in rest]
    return snapshot, replace(decision, ideals=tuple(ideals))


def overfull(snapshot: Snapshot, decision: Decision) -> tuple[Snapshot, Decision]:
    """Make every node smaller than the grants on it."""
    nodes = tuple(replace(node, gpus=1) for node in snapshot.nodes)
    return replace(snapshot, nodes=nodes), _granted(decision)


def partial(snapshot: Snapshot, decision: Decision) -> tuple[Snapshot, Decision]:
    """Make every job need one GPU more than it gets."""
    jobs = tuple(replace(job, gpus=job.gpus + 1) for job in snapshot.jobs)
    return replace(snapshot, jobs=jobs), decision


def overpriced(snapshot: Snapshot, decision: Decision) -> tuple[Snapshot, Decision]:
    """Change to a market at nine credits, where alpha's job borrows but bids only the base rate."""
    prices = tuple(replace(row, price_micro=9 * CREDIT_MICRO) for row in snapshot.prices)
    grants = tuple(replace(row, price_micro=9 * CREDIT_MICRO) for row in decision.grants)
    market = replace(snapshot, policy="market", options={}, prices=prices)
    return market, replace(decision, grants=grants)


def overclaimed(snapshot: Snapshot, decision: Decision) -> tuple[Snapshot, Decision]:
    """Declare the speeds of three job types at 2, 1.5 and 1 times the measured ones."""
    factors = dict(zip((row.id for row in snapshot.profiles), (2.0, 1.5, 1.0), strict=True))
    rows = tuple(_measured(row, factors[row.id]) for row in snapshot.profiles)
    return replace(snapshot, measured=rows), decision


def _measured(profile: Profile, factor: float) -> MeasuredProfile:
    """Return the measured speeds, and declared speeds that are `factor` times as high."""
    slow, *rest = profile.speedups
    declared = (slow, *((kind, int(milli * factor)) for kind, milli in rest))
    speeds = tuple((kind, MeasuredSpeed(milli, 10, 12)) for kind, milli in profile.speedups)
    return MeasuredProfile(profile.id, declared, speeds)


def passed_over(snapshot: Snapshot, decision: Decision) -> tuple[Snapshot, Decision]:
    """Change to a market in which gamma's job needs one GPU, has quota for it, and still waits."""
    waiting = {job for skip in decision.skips for job in skip.jobs}
    jobs = tuple(replace(job, gpus=1) if job.id in waiting else job for job in snapshot.jobs)
    return replace(snapshot, policy="market", options={}, jobs=jobs), decision


def unkept(snapshot: Snapshot, decision: Decision) -> tuple[Snapshot, Decision]:
    """Change to promised starts, and drop the promise of a waiting job before its time."""
    waiting = {job for skip in decision.skips for job in skip.jobs}
    job = next(job for job in snapshot.jobs if job.id in waiting)
    node, at_us = snapshot.nodes[0], snapshot.at_us
    row = [job.id, node.gpu_type, job.gpus, at_us + 1, at_us, [[node.id, 0, [], []]]]
    options, memory = {"promises": True}, {"promises": [row]}
    promised = replace(snapshot, policy="evenshare", options=options, memory=memory)
    return promised, replace(decision, memory={})


def starved(snapshot: Snapshot, decision: Decision) -> tuple[Snapshot, Decision]:
    """Change to a round of ltgf without grants, though alpha's job fits the idle GPUs."""
    return replace(snapshot, policy="ltgf", options={}, memory={}), replace(decision, grants=())


def _granted(decision: Decision) -> Decision:
    """Return the decision with a first grant of two GPUs on its node."""
    first, *rest = decision.grants
    placement = ((first.placement[0][0], 2),)
    return replace(decision, grants=(replace(first, placement=placement), *rest))
