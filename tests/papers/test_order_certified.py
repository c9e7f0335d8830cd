"""The order line of LTGF's certificates is green for honest rounds and red for manipulated ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from benchmarks.ltgf_pool import advanced, pool
from evenshare_core.domain.decision import Decision, Grant, Key, Renew, Skip
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Change, ChangeKind, Snapshot
from evenshare_core.fairness.certificate import CertificateItem, Property, Verdict
from evenshare_core.fairness.order import KeptGpus, OrderRule, check_order
from evenshare_core.policies.base import certify_round, decide_round
from evenshare_core.policies.ltgf.picks import OTHER_TYPE
from evenshare_core.policies.shared.reservation import RESERVED
from tests.papers.mixed_pool import cluster, mixed_cluster, mixed_workload, rounds
from tests.unit.core import snapshots
from tests.unit.core.certificates import line

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"work_conserving": False},
    {"tenant_share": "quota", "spread": True},
    {"work_conserving": False, "reserve_after_leases": 0, "new_jobs_first": True},
)
TYPES = (("v100",), ("k80", "v100"), ("k80", "p100", "v100"))


def random_round(seed: int, **fields: Any) -> Snapshot:
    """Draw a pool of one to three types with limits, options, and gangs that were skipped."""
    rng = random.Random(seed)  # noqa: S311 - a seeded pool, not a secret
    drawn: dict[str, Any] = {
        "nodes": rng.randint(1, 14),
        "tenants": rng.randint(1, 8),
        "pending": rng.randint(0, 60),
        "fill": rng.choice((0, 0.3, 0.6, 0.9, 1.0)),
        "expired": rng.choice((0, 0.1, 0.3, 0.6, 1.0)),
        "gpu_types": rng.choice(TYPES),
        "limits": rng.random() < 0.6,
        "several": rng.choice((0, 0, 0.3, 1.0)),
    }
    snapshot = advanced(pool(seed=seed, **(drawn | fields)))
    held = {lease.job for lease in snapshot.leases}
    waiting = [job.id for job in snapshot.jobs if job.id not in held]
    passed = rng.sample(waiting, min(len(waiting), rng.randint(0, 5)))
    since = {str(job): snapshot.at_us - rng.choice((1, 3)) * snapshot.lease_us for job in passed}
    return replace(snapshot, options=rng.choice(OPTIONS), memory={"passed": since})


def order(snapshot: Snapshot, decision: Decision) -> CertificateItem:
    found = certify_round(snapshot, decision)
    assert found.failure == ""
    return line(found, Property.LONG_TERM_ORDER)


class TestHonestRounds:
    def test_order_holds_in_random_pools(self) -> None:
        seen: Counter[str] = Counter()
        for seed in range(400):
            snapshot = random_round(seed)
            decision = decide_round(snapshot)
            row = order(snapshot, decision)
            assert row.verdict is Verdict.HOLDS, f"seed {seed}: {row}"
            seen["picks"] += row.checked
            seen["withdrawn"] += any(skip.numbers.get("withdrawn") for skip in decision.skips)
            seen["kept"] += bool(decision.memory.get("reserved"))
            seen["noted"] += any(grant.key.note for grant in decision.grants)
        # A round may skip a job in three cases; each case occurred.
        assert seen["picks"] > 3000
        assert min(seen["withdrawn"], seen["kept"], seen["noted"]) >= 2

    @pytest.mark.parametrize(
        "options",
        [{}, {"work_conserving": False}, {"reserve_after_leases": 1}, {"spread": True}],
        ids=str,
    )
    def test_order_holds_over_hours_of_rounds(self, options: dict[str, Any]) -> None:
        """The policy's memory is kept between rounds, so that large gangs get their turn."""
        jobs = mixed_workload(1, jobs=150, hours=6).jobs
        kept = picks = 0
        for snapshot, decision, _ in rounds(
            mixed_cluster(), jobs, 120, "ltgf", round_min=2, lease_min=10, options=options
        ):
            row = order(snapshot, decision)
            assert row.verdict is Verdict.HOLDS, f"round {snapshot.number}: {row}"
            kept += bool(decision.memory.get("reserved"))
            picks += row.checked
        assert picks > 100
        assert kept > 0 or options == {"spread": True}

    def test_order_is_not_promised_by_other_policies(self) -> None:
        snapshot = replace(random_round(1), policy="evenshare", options={}, memory={})
        assert order(snapshot, decide_round(snapshot)).verdict is Verdict.NOT_PROMISED


# ---- manipulated decisions ----


def busy(seed: int, **fields: Any) -> tuple[Snapshot, Decision]:
    """Return a round of several tenants, without reserved GPUs, and its decision."""
    known: dict[str, Any] = {
        "nodes": 6, "tenants": 4, "pending": 40, "fill": 0.9, "expired": 0.6,
        "gpu_types": ("v100",), "several": 0,
    }  # fmt: skip
    snapshot = replace(random_round(seed, **(known | fields)), options={}, memory={})
    return snapshot, decide_round(snapshot)


def terms(decision: Decision) -> list[Grant | Renew]:
    return sorted([*decision.grants, *decision.renewals], key=lambda term: term.order)


def without(decision: Decision, tenant: int) -> Decision:
    """Return the decision without the grants and renewals of a tenant."""
    grants = tuple(row for row in decision.grants if row.tenant != tenant)
    renewals = tuple(row for row in decision.renewals if row.tenant != tenant)
    return replace(decision, grants=grants, renewals=renewals)


def served_tenants(seeds: range) -> Iterator[tuple[Snapshot, Decision, int]]:
    for seed in seeds:
        snapshot, decision = busy(seed)
        assert order(snapshot, decision).verdict is Verdict.HOLDS
        for tenant in sorted({term.tenant for term in terms(decision)}):
            yield snapshot, decision, tenant


class TestManipulatedRounds:
    def test_detects_tenant_without_picks(self) -> None:
        """The jobs of the tenant would fit on GPUs that stay idle."""
        cases = 0
        for snapshot, decision, tenant in served_tenants(range(20)):
            row = order(snapshot, without(decision, tenant))
            assert (row.verdict, tenant in row.broken) == (Verdict.VIOLATED, True)
            assert row.worst is not None
            cases += 1
        assert cases > 40

    def test_detects_one_dropped_pick(self) -> None:
        cases = 0
        for seed in range(20):
            snapshot, decision = busy(seed, limits=False)
            for row in decision.grants:
                left = tuple(one for one in decision.grants if one is not row)
                found = order(snapshot, replace(decision, grants=left))
                assert found.verdict is Verdict.VIOLATED
                assert row.tenant in {*found.broken, found.tenant}
                cases += 1
        assert cases > 100

    @pytest.mark.parametrize("withdrawn", [False, True])
    @pytest.mark.parametrize("reason", [Reason.BUDGET, Reason.QUOTA_LIMIT, Reason.NO_FREE_GPUS])
    def test_false_reason_does_not_excuse_dropped_picks(
        self, reason: Reason, withdrawn: bool
    ) -> None:
        for snapshot, decision, tenant in served_tenants(range(8)):
            jobs = tuple(sorted(term.job for term in terms(decision) if term.tenant == tenant))
            said = {"gpu_type": "v100", "needed": 1, "free": 0, "spendable_micro": 0}
            if withdrawn:
                said["withdrawn"] = True
            skip = Skip(reason, tenant, jobs, len(jobs), said)
            lied = replace(without(decision, tenant), skips=(*decision.skips, skip))
            row = order(snapshot, lied)
            assert (row.verdict, tenant in row.broken) == (Verdict.VIOLATED, True)

    def test_premature_reservation_does_not_excuse_picks(self) -> None:
        seen = 0
        for snapshot, decision, tenant in served_tenants(range(12)):
            large = max(snapshot.jobs, key=lambda job: job.gpus)
            holds = [[node.id, node.gpus] for node in snapshot.nodes]
            memory: dict[str, Any] = {"reserved": {"v100": {"job": large.id, "holds": holds}}}
            memory["passed"] = {str(large.id): snapshot.at_us - 9 * snapshot.lease_us}
            row = order(snapshot, replace(without(decision, tenant), memory=memory))
            assert (row.verdict, tenant in row.broken) == (Verdict.VIOLATED, True)
            seen += 1
        assert seen > 20

    @pytest.mark.parametrize(
        ("gang", "passed_us", "nodes", "idle"),
        [
            # allowed: the gang waited too long, does not fit, and holds back no more GPUs than it
            # needs
            (4, 4, 2, ()),
            (4, 5, 2, (2,)),  # the gang has not waited too long yet
            (4, None, 2, (2,)),  # the gang was never skipped
            (3, 4, 2, (2,)),  # more GPUs are held back than the gang needs
            (2, 4, 1, (1, 2)),  # the gang fits on free GPUs
        ],
    )
    def test_detects_wrongly_reserved_gpus(
        self, gang: int, passed_us: int | None, nodes: int, idle: tuple[int, ...]
    ) -> None:
        """Each node has two free GPUs, all held back for the gang, while a small job waits."""
        running = [snapshots.job(20 + node, 2, tenant=3) for node in range(1, nodes + 1)]
        asked = snapshots.snapshot(
            [*running, snapshots.job(11, gang), snapshots.job(12, 1, tenant=2)],
            nodes=dict.fromkeys(range(1, nodes + 1), 4),
            leases=tuple(
                Lease(30 + node, 20 + node, 3, "v100", ((node, 2),), 0, 10**9, 1, 2, 0, 0)
                for node in range(1, nodes + 1)
            ),
            quotas=tuple(Entitlement(tenant, "v100", 4) for tenant in (1, 2, 3)),
        )
        decision = replace(decide_round(asked), grants=(), skips=(), memory={})
        holds = tuple((node, 2) for node in range(1, nodes + 1))
        rule = OrderRule(
            passed_since={} if passed_us is None else {11: passed_us},
            late_us=5,
            kept=(KeptGpus("v100", 11, holds),),
        )
        assert check_order(asked, decision, rule).idle == idle

    @pytest.mark.parametrize("note", ["", RESERVED, OTHER_TYPE])
    def test_detects_swapped_picks_of_poorest_and_richest(self, note: str) -> None:
        """A pick's note excuses the order only if the job has waited too long."""
        cases = 0
        for seed in range(40):
            snapshot, decision = busy(seed)
            picks = terms(decision)
            rho = {row.tenant: row.rho_before or 0.0 for row in decision.shares}
            first, last = picks[0], picks[-1]
            if rho[first.tenant] >= rho[last.tenant]:
                continue
            swapped = {first.job: last.order, last.job: first.order}
            grants, renewals = (
                tuple(
                    replace(
                        row,
                        order=swapped.get(row.job, row.order),
                        key=replace(row.key, note=note) if row.job == last.job else row.key,
                    )
                    for row in rows
                )
                for rows in (decision.grants, decision.renewals)
            )
            row = order(snapshot, replace(decision, grants=grants, renewals=renewals))
            assert row.verdict is Verdict.VIOLATED
            assert last.tenant in row.broken
            cases += 1
        assert cases > 10

    def test_detects_gpus_of_poorest_given_to_richest(self) -> None:
        """No GPU is idle, but a tenant far above its share gets the GPUs of a starving tenant."""
        snapshot = starving()
        honest = decide_round(snapshot)
        assert {grant.tenant for grant in honest.grants} == {1, 2}
        assert order(snapshot, honest).verdict is Verdict.HOLDS
        mine = [job for job in snapshot.jobs if job.tenant == 2]
        row = order(snapshot, replace(honest, grants=given(mine[:8], [(1, 1)] * 8)))
        assert (row.verdict, row.broken) == (Verdict.VIOLATED, (2,))
        assert (row.tenant, row.other, row.worst) == (1, 2, None)

    def test_detects_small_jobs_in_place_of_gang(self) -> None:
        """Eight small jobs take one GPU each, and with one GPU less the gang no longer fits."""
        snapshot = starving(gang=8)
        mine = [job for job in snapshot.jobs if job.tenant == 2]
        honest = decide_round(snapshot)
        assert [grant.job for grant in honest.grants] == [1]
        row = order(snapshot, replace(honest, grants=given(mine[:8], [(1, 1)] * 8)))
        assert (row.verdict, row.broken, row.tenant) == (Verdict.VIOLATED, (2,), 1)

    def test_detects_idle_gpus_on_one_of_several_types(self) -> None:
        seen = 0
        for seed in range(12):
            snapshot, decision = busy(seed, gpu_types=("k80", "v100"), several=0.3, limits=False)
            for row in decision.grants:
                left = tuple(one for one in decision.grants if one is not row)
                found = order(snapshot, replace(decision, grants=left))
                assert found.verdict is Verdict.VIOLATED
                seen += 1
        assert seen > 50


def starving(gang: int = 1) -> Snapshot:
    """Return a round of 8 GPUs: tenant 2 had them all, tenant 1 none, and both want 8."""
    mine = [snapshots.job(n, gang, tenant=1) for n in range(1, 1 + 8 // gang)]
    theirs = [snapshots.job(n, 1, tenant=2) for n in range(21, 37)]
    held = [snapshots.lease(n, n, (1, 1), tenant=2) for n in range(21, 29)]
    quotas = [Entitlement(tenant, "v100", 4) for tenant in (1, 2)]
    snapshot = snapshots.snapshot([*mine, *theirs], held, nodes={1: 8}, quotas=quotas)
    # Only waiting jobs can get grants, so the leases end and their jobs are removed.
    ended = {lease.job for lease in held}
    return replace(
        snapshot,
        jobs=tuple(job for job in snapshot.jobs if job.id not in ended),
        leases=(),
        changes=(
            *snapshot.changes,
            *(Change(snapshots.AT_US, ChangeKind.INACTIVE, 2, job) for job in sorted(ended)),
        ),
    )


def given(jobs: list[Job], places: list[tuple[int, int]]) -> tuple[Grant, ...]:
    """Return grants of these jobs at these (node, GPUs), picked in this order."""
    return tuple(
        Grant(number, job.id, job.tenant, "v100", (place,), Key(None, None))
        for number, (job, place) in enumerate(zip(jobs, places, strict=True), start=1)
    )


def test_gpu_swap_does_not_hide_idle_room() -> None:
    """The use of each node is still computed correctly if a renewal and a grant swap GPUs."""
    jobs = [snapshots.job(n, 4, tenant=1 + n % 2) for n in range(1, 7)]
    held = [snapshots.lease(n, n, (n, 4), tenant=1 + n % 2) for n in (1, 2)]
    quotas = [Entitlement(tenant, "v100", 8) for tenant in (1, 2)]
    snapshot = snapshots.snapshot(jobs, held, nodes={1: 4, 2: 4, 3: 4}, quotas=quotas)
    decision = decide_round(snapshot)
    assert order(snapshot, decision).verdict is Verdict.HOLDS
    for row in decision.grants:
        left = tuple(one for one in decision.grants if one is not row)
        assert order(snapshot, replace(decision, grants=left)).verdict is Verdict.VIOLATED


def test_detects_idle_gpus_with_single_tenant() -> None:
    snapshot = snapshots.snapshot([snapshots.job(1, 2), snapshots.job(2, 2)], nodes={1: 4})
    decision = decide_round(snapshot)
    row = order(snapshot, replace(decision, grants=decision.grants[:1]))
    assert (row.verdict, row.tenant, row.other, row.worst) == (Verdict.VIOLATED, 1, None, 2)


def test_order_holds_without_jobs() -> None:
    snapshot, decision, _ = next(rounds(cluster([[4]], {1: 4}), [], 1, "ltgf"))
    row = order(snapshot, decision)
    assert (row.verdict, row.checked, row.total) == (Verdict.HOLDS, 0, 0)
