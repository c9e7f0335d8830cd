"""Test a certificate's line of promised starts: measured without the policy, violated if broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.decision import Decision, Grant, Key, Skip
from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import CertificateItem, Property, Verdict
from evenshare_core.policies.base import certify_round, decide_round
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, NodeChange, SimJob
from evenshare_core.units import SECOND_US
from tests.papers.test_evenshare_properties import ROUND_US, ROUNDS, drawn
from tests.unit.core.certificates import line

OPTIONS: dict[str, Any] = {"promises": True, "min_runtime_s": 60}
VIOLATED, HOLDS = Verdict.VIOLATED, Verdict.HOLDS
ADA, BOB, CYD = 1, 2, 3
ONE, TWO, GANG, LATE = 11, 12, 21, 31  # jobs of Ada, Ada, Bob and Cyd
MINUTE_US = 60 * SECOND_US
Row = list[Any]  # of a promise: job, GPU type, GPUs, due_us, made_us, parts


def starts(snapshot: Snapshot, decision: Decision) -> CertificateItem:
    found = certify_round(snapshot, decision)
    assert not found.failure
    return line(found, Property.PROMISED_STARTS)


class TestSimulatedRounds:
    @pytest.mark.parametrize(
        ("seed", "sizes"),
        [(1, (1, 1, 2, 4, 8)), (2, (4, 8, 8, 16)), (3, (1, 8)), (4, (1, 1, 2, 3, 4, 5, 8))],
    )
    def test_break_no_promise(self, seed: int, sizes: tuple[int, ...]) -> None:
        cluster, jobs = drawn(seed, sizes)
        seen = Counter[str]()
        for snapshot, decision in simulated(cluster, jobs, ROUNDS, ROUND_US):
            row = starts(snapshot, decision)
            assert row.verdict in {HOLDS, Verdict.NOT_APPLICABLE}
            seen["promises"] += row.checked
            seen.update(grant.key.note for grant in decision.grants)
            seen.update(row.rule.value for row in decision.preemptions)
        assert min(seen["promises"], seen["promised"], seen["backfilled"], seen["promise"]) > 0


def simulated(
    cluster: Cluster, jobs: tuple[SimJob, ...], count: int, round_us: int
) -> Iterator[tuple[Snapshot, Decision]]:
    rules = Rules("evenshare", OPTIONS, round_us, 600 * SECOND_US)
    state = SimulationState(cluster, jobs, rules)
    for number in range(count):
        state.advance(number * round_us)
        snapshot = state.snapshot()
        decision = decide_round(snapshot)
        yield snapshot, decision
        state.apply(decision)


def gang_rounds(**changes: Any) -> list[tuple[Snapshot, Decision]]:
    """Return rounds of a node of 8 GPUs, one per minute.

    From minute 0 on, Ada's job ONE holds 5 GPUs; from minute 3 on, TWO holds 2. In minute 4 Bob's
    gang of 8 arrives and gets a promise. In minute 6 Cyd's job of 1 GPU borrows the held GPU.
    """
    hour_us = 60 * MINUTE_US
    jobs = (
        SimJob(ONE, ADA, 5, 0, 2 * hour_us),
        SimJob(TWO, ADA, 2, 3 * MINUTE_US, 2 * hour_us),
        SimJob(GANG, BOB, 8, 4 * MINUTE_US, hour_us, **changes.pop("gang", {})),
        SimJob(LATE, CYD, 1, 6 * MINUTE_US, hour_us),
    )
    quotas = (Entitlement(ADA, "v100", 0), Entitlement(BOB, "v100", 8, **changes.pop("quota", {})))
    cluster = Cluster((Node(1, "v100", 8),), quotas, **changes)
    return list(simulated(cluster, jobs, 20, MINUTE_US))


def promised(decision: Decision) -> dict[int, Row]:
    return {row[0]: row for row in decision.memory.get("promises", ())}


def with_promises(decision: Decision, *rows: Row) -> Decision:
    """Return the decision with other promises in its memory."""
    memory = {name: value for name, value in decision.memory.items() if name != "promises"}
    return replace(decision, memory=memory | ({"promises": list(rows)} if rows else {}))


def due_round(rounds: list[tuple[Snapshot, Decision]]) -> tuple[Snapshot, Decision]:
    """Return the round in which the gang started."""
    return next(row for row in rounds if GANG in {grant.job for grant in row[1].grants})


def first_promise(rounds: list[tuple[Snapshot, Decision]]) -> int:
    return next(index for index, (_, decision) in enumerate(rounds) if promised(decision))


@pytest.fixture(scope="module")
def rounds() -> list[tuple[Snapshot, Decision]]:
    return gang_rounds()


@pytest.fixture
def waiting(rounds: list[tuple[Snapshot, Decision]]) -> tuple[Snapshot, Decision]:
    """Return the round after the one that made the promise."""
    return rounds[first_promise(rounds) + 1]


@pytest.fixture
def late(rounds: list[tuple[Snapshot, Decision]]) -> tuple[Snapshot, Decision]:
    """Return the round in which the gang is due, but in which nothing starts or ends."""
    snapshot, decision = due_round(rounds)
    held = replace(decision, grants=(), ends=(), preemptions=())
    return snapshot, with_promises(held, *snapshot.memory["promises"])


class TestKeptPromise:
    def test_holds_until_start(self, rounds: list[tuple[Snapshot, Decision]]) -> None:
        first = first_promise(rounds)
        found = [starts(*row) for row in rounds]
        assert {row.verdict for row in found[:first]} == {Verdict.NOT_APPLICABLE}
        last = rounds.index(due_round(rounds))
        assert {row.verdict for row in found[first : last + 1]} == {HOLDS}
        assert (found[first].checked, found[first].count, found[first].total) == (1, 0, 1.0)
        ((job, gpu_type, gpus, *_, parts),) = promised(rounds[first][1]).values()
        assert (job, gpu_type, gpus, parts) == (GANG, "v100", 8, [[1, 1, [[ONE, 5], [TWO, 2]], []]])

    def test_has_no_line_without_the_option(self, waiting: tuple[Snapshot, Decision]) -> None:
        snapshot, decision = waiting
        found = certify_round(replace(snapshot, options={**OPTIONS, "promises": False}), decision)
        assert Property.PROMISED_STARTS not in {row.name for row in found.findings}
        assert found.version == 3
        assert certify_round(snapshot, decision).version == 7

    def test_may_become_earlier(self, waiting: tuple[Snapshot, Decision]) -> None:
        snapshot, decision = waiting
        earlier = changed(promised(decision)[GANG], due_us=snapshot.at_us + 1)
        assert starts(snapshot, with_promises(decision, earlier)).verdict is HOLDS


def changed(row: Row, *, due_us: int | None = None, part: Row | None = None) -> Row:
    job, gpu_type, gpus, old_us, made_us, parts = row
    parts = parts if part is None else [part]
    return [job, gpu_type, gpus, old_us if due_us is None else due_us, made_us, parts]


class TestBrokenPromise:
    def assert_broken(self, snapshot: Snapshot, decision: Decision) -> None:
        row = starts(snapshot, decision)
        assert (row.verdict, row.checked, row.count, row.broken) == (VIOLATED, 1, 1, (BOB,))

    def test_due_job_not_started(self, late: tuple[Snapshot, Decision]) -> None:
        self.assert_broken(*late)

    def test_start_at_time_promised_is_late(self, waiting: tuple[Snapshot, Decision]) -> None:
        snapshot, decision = waiting
        now = changed(snapshot.memory["promises"][0], due_us=snapshot.at_us)
        asked = replace(snapshot, memory=snapshot.memory | {"promises": [now]})
        self.assert_broken(asked, with_promises(decision, now))

    def test_due_job_promised_again(self, late: tuple[Snapshot, Decision]) -> None:
        snapshot, decision = late
        again = changed(promised(decision)[GANG], due_us=snapshot.at_us + MINUTE_US)
        self.assert_broken(snapshot, with_promises(decision, again))

    def test_time_moved_later(self, waiting: tuple[Snapshot, Decision]) -> None:
        snapshot, decision = waiting
        row = promised(decision)[GANG]
        self.assert_broken(snapshot, with_promises(decision, changed(row, due_us=row[3] + 1)))

    def test_promise_dropped(self, waiting: tuple[Snapshot, Decision]) -> None:
        snapshot, decision = waiting
        self.assert_broken(snapshot, with_promises(decision))

    def test_held_gpu_given_away(self, rounds: list[tuple[Snapshot, Decision]]) -> None:
        """Cyd's job gets the held GPU, but is not pinned."""
        snapshot, decision = next(
            row for row in rounds if LATE in {grant.job for grant in row[1].grants}
        )
        assert promised(decision)[GANG][5] == [[1, 0, [[ONE, 5], [TWO, 2], [LATE, 1]], []]]
        assert starts(snapshot, decision).verdict is HOLDS
        kept = with_promises(decision, *snapshot.memory["promises"])
        self.assert_broken(snapshot, kept)

    @pytest.mark.parametrize(
        "part",
        [
            [1, 2, [[ONE, 4], [TWO, 2]], []],  # more held than free
            [1, 1, [[ONE, 4], [TWO, 3]], []],  # more of TWO than it has
            [1, 1, [[ONE, 5], [LATE, 2]], []],  # a job without a lease
            [1, 1, [[ONE, 5], [TWO, 1]], []],  # 7 GPUs
            [1, 1, [[ONE, 5]], [[77, 2]]],  # behind a promise that does not exist
            [2, 1, [[ONE, 5], [TWO, 2]], []],  # a node that does not exist
        ],
    )
    def test_gpus_miscounted(self, waiting: tuple[Snapshot, Decision], part: Row) -> None:
        snapshot, decision = waiting
        row = changed(promised(decision)[GANG], part=part)
        self.assert_broken(snapshot, with_promises(decision, row))

    def test_gpus_of_two_promises_overlap(self, waiting: tuple[Snapshot, Decision]) -> None:
        snapshot, decision = waiting
        row = promised(decision)[GANG]
        jobs = (*snapshot.jobs, replace(snapshot.jobs[-1], id=99, tenant=CYD))
        other = [99, *row[1:]]
        found = starts(replace(snapshot, jobs=jobs), with_promises(decision, row, other))
        assert (found.verdict, found.count, found.broken) == (VIOLATED, 2, (BOB, CYD))


class TestExcuse:
    def test_cancelled_job_has_no_claim(self) -> None:
        rounds = gang_rounds(gang={"cancel_us": 8 * MINUTE_US})
        assert promised(rounds[7][1])
        assert not promised(rounds[8][1])
        assert starts(*rounds[8]).verdict is HOLDS

    def test_lost_node(self) -> None:
        changes = (NodeChange(8 * MINUTE_US, 1, 4),)
        rounds = gang_rounds(changes=changes)
        assert promised(rounds[7][1])
        assert not promised(rounds[8][1])
        assert starts(*rounds[8]).verdict is HOLDS

    def test_protected_lease(self, late: tuple[Snapshot, Decision]) -> None:
        """The promise must continue meanwhile."""
        snapshot, decision = late
        at_us = snapshot.at_us
        leases = tuple(
            replace(row, expires_us=at_us + 1, protected_until_us=at_us + 1)
            for row in snapshot.leases
        )
        asked = replace(snapshot, leases=leases)
        assert starts(asked, decision).verdict is HOLDS
        assert starts(asked, with_promises(decision)).verdict is VIOLATED

    @pytest.mark.parametrize(("ran_us", "verdict"), [(59, HOLDS), (60, VIOLATED)])
    def test_minimum_runtime(
        self, late: tuple[Snapshot, Decision], ran_us: int, verdict: Verdict
    ) -> None:
        snapshot, decision = late
        started_us = snapshot.at_us - ran_us * SECOND_US
        leases = tuple(
            replace(row, started_us=started_us, expires_us=2**50, protected_until_us=0)
            for row in snapshot.leases
        )
        assert starts(replace(snapshot, leases=leases), decision).verdict is verdict

    def test_limit(self, late: tuple[Snapshot, Decision]) -> None:
        """A limit that would refuse the job is computed again, whatever reason the round states."""
        snapshot, decision = late
        assert starts(snapshot, with_promises(decision)).verdict is VIOLATED
        quotas = (Entitlement(BOB, "v100", 7, borrow_limit=0),)
        asked = replace(snapshot, entitlements=quotas)
        assert starts(asked, with_promises(decision)).verdict is HOLDS

    @pytest.mark.parametrize(("mode", "verdict"), [("RESERVE", HOLDS), ("LEND", VIOLATED)])
    def test_reserved_quota(
        self, late: tuple[Snapshot, Decision], mode: str, verdict: Verdict
    ) -> None:
        """Once Ada's leases end, its quota is idle, and Ada may reserve it."""
        snapshot, decision = late
        quotas = (Entitlement(ADA, "v100", 8, Mode(mode)), Entitlement(BOB, "v100", 0))
        asked = replace(snapshot, entitlements=quotas)
        assert starts(asked, with_promises(decision)).verdict is verdict

    @pytest.mark.parametrize(("size", "verdict"), [(8, HOLDS), (9, VIOLATED)])
    def test_node_with_fewer_gpus_than_promised(
        self, waiting: tuple[Snapshot, Decision], size: int, verdict: Verdict
    ) -> None:
        """Two promises hold a GPU each."""
        snapshot, decision = waiting
        jobs = (*snapshot.jobs, replace(snapshot.jobs[-1], id=99, tenant=CYD, gpus=1))
        first = snapshot.memory["promises"][0]
        second = [99, "v100", 1, first[3], first[4], [[1, 1, [], []]]]
        memory = {**snapshot.memory, "promises": [first, second]}
        nodes = (Node(1, "v100", size),)
        asked = replace(snapshot, jobs=jobs, memory=memory, nodes=nodes)
        assert starts(asked, with_promises(decision)).verdict is verdict

    def test_withdrawn_start(self, late: tuple[Snapshot, Decision]) -> None:
        snapshot, decision = late
        numbers = {"gpu_type": "v100", "withdrawn": True}
        skip = Skip(Reason.LEASE_TURN, BOB, (GANG,), 8, numbers)
        withdrawn = replace(with_promises(decision), skips=(skip,))
        assert starts(snapshot, withdrawn).verdict is HOLDS

    def test_older_promise_must_wait(self, late: tuple[Snapshot, Decision]) -> None:
        """A promise behind another one waits for it only as long as that one has an excuse."""
        snapshot, decision = late
        row, at_us = promised(decision)[GANG], snapshot.at_us
        jobs = (*snapshot.jobs, replace(snapshot.jobs[-1], id=99, tenant=CYD, gpus=1))
        older = changed(row, due_us=at_us - 1)
        behind = [99, "v100", 1, at_us, at_us - 9, [[1, 0, [], [[GANG, 1]]]]]
        memory = {**snapshot.memory, "promises": [older, behind]}
        asked = replace(snapshot, jobs=jobs, memory=memory)
        kept = with_promises(decision, older, behind)
        assert starts(asked, kept).broken == (BOB, CYD)
        leases = tuple(
            replace(row, expires_us=2**50, protected_until_us=at_us + 1) for row in snapshot.leases
        )
        assert starts(replace(asked, leases=leases), kept).verdict is HOLDS

    def test_start_elsewhere_counts(self, late: tuple[Snapshot, Decision]) -> None:
        snapshot, decision = late
        nodes = (*snapshot.nodes, Node(2, "v100", 8))
        grant = Grant(1, GANG, BOB, "v100", ((2, 8),), Key(None, None))
        started = replace(with_promises(decision), grants=(grant,))
        assert starts(replace(snapshot, nodes=nodes), started).verdict is HOLDS
