"""Test that the checker of promised starts accepts right rounds and reports every kind of breach.

Node 1 has 8 GPUs, of which job 11 holds 5 and 3 are free. Job 12 holds all 8 of node 2, and node 3
is lost. Tenant 1 is owed GPUs, and tenant 2 holds them. Job 1, a gang of 8, has a promise on node
1, and job 2 one on node 2, behind job 12. Times are in seconds from the round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.decision import Decision, End, Grant, Key, Preemption, Renew, TermLength
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import EndReason, PreemptionRule
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.units import SECOND_US
from tests.papers.evenshare_pools import AT_US, pool, running
from tests.simulation.promise_bound import Candidate, Followed, follow
from tests.simulation.promise_checker import breaches
from tests.simulation.promise_round import RoundView

TYPE, ROUND_S = "v100", 10
KEY = Key(None, None)
SIZES = {1: 8, 2: 8, 3: 0}
Row = list[Any]


def at(after_s: int) -> int:
    return AT_US + after_s * SECOND_US


def job(number: int, gpus: int, tenant: int = 1, after_s: int = -500) -> Job:
    return Job(number, tenant, gpus, at(after_s))


def lease(number: int, node: int, gpus: int, until_s: int, tenant: int = 2) -> Lease:
    return running(number, node, gpus, tenant=tenant, expires_us=at(until_s))


def row(number: int, gpus: int, due_s: int, *parts: Row, made_s: int = -20) -> Row:
    return [number, TYPE, gpus, at(due_s), at(made_s), list(parts)]


def grant(number: int, node: int, gpus: int, tenant: int = 1) -> Grant:
    return Grant(number, number, tenant, TYPE, ((node, gpus),), KEY)


def renew(number: int, gpus: int) -> Renew:
    return Renew(number, number, number, 2, TYPE, gpus, KEY)


def length(number: int, for_s: int) -> TermLength:
    return TermLength(number, for_s * SECOND_US)


def end(number: int, reason: EndReason = EndReason.NOT_RENEWED) -> End:
    return End(number, number, 2, reason)


def ended_for(number: int, for_job: int, rule: PreemptionRule) -> dict[str, Any]:
    """Return the end of a lease before its expiry."""
    why = Preemption(number, number, 2, rule, for_job, 1)
    return {"ends": (end(number, EndReason.PREEMPTED),), "preemptions": (why,)}


JOBS = (job(1, 8), job(2, 2), job(3, 3), job(4, 4, tenant=3), job(11, 5, 2), job(12, 8, 2))
LEASES = (lease(11, 1, 5, 100), lease(12, 2, 8, 200))
FIRST = row(1, 8, 100, [1, 8, 3, [[11, 5]], []])
SECOND = row(2, 2, 200, [2, 2, 0, [[12, 2]], []])
BOTH = [FIRST, SECOND]
# tenant -> A and F in GPU-seconds: tenant 2 is not owed
SUMS = {1: (0, 4000), 2: (9000, 4000), 3: (0, 0)}


def one_round(
    before: Sequence[Row] | None = None,
    after: Sequence[Row] = BOTH,
    *,
    jobs: Sequence[Job] = JOBS,
    leases: Sequence[Lease] = LEASES,
    nodes: dict[int, int] | None = None,
    quota: int = 16,
    number: int = 1,
    **decided: Any,
) -> tuple[Snapshot, Decision]:
    """Return a round; by default, the same promises exist before and after it."""
    snapshot = pool(
        jobs, leases, nodes=nodes or SIZES, sums=SUMS, number=number,
        round_us=ROUND_S * SECOND_US,
        quotas=[Entitlement(1, TYPE, quota), *(Entitlement(key, TYPE, 8) for key in (2, 3))],
    )  # fmt: skip # rows of what belongs together
    before = after if before is None else before
    decision = Decision(
        at_us=AT_US, service=snapshot.service,
        memory={**snapshot.memory, "promises": list(after)}, **decided,
    )  # fmt: skip # rows of what belongs together
    return replace(snapshot, memory={**snapshot.memory, "promises": list(before)}), decision


def found(*args: Any, sizes: dict[int, int] | None = None, **fields: Any) -> list[str]:
    return breaches(RoundView(*one_round(*args, **fields), sizes=sizes or {}))


NEW = row(1, 8, 100, [1, 8, 3, [[11, 5]], []], made_s=0)
BEHIND = row(3, 3, 1000, [1, 3, 0, [], [[1, 3]]])
DUE = lease(11, 1, 5, 0)
LARGE = row(6, 12, 200, [1, 8, 3, [[11, 5]], []], [2, 4, 0, [[12, 4]], []])

GOOD: dict[str, dict[str, Any]] = {
    "kept": {},
    "no promises": {"before": [], "after": []},
    "new": {"before": [SECOND], "after": [NEW, SECOND]},
    "starts": {
        "before": [row(1, 8, 0, [1, 8, 3, [[11, 5]], []]), SECOND],
        "after": [SECOND],
        "leases": [DUE, LEASES[1]],
        "grants": (grant(1, 1, 8),),
        "ends": (end(11),),
    },
    "starts elsewhere": {
        "before": [FIRST],
        "after": [],
        "leases": LEASES[:1],
        "grants": (grant(1, 2, 8),),
    },
    "moved to earlier": {"before": [row(1, 8, 150, *FIRST[5]), SECOND]},
    "backfilled until T": {
        "grants": (grant(3, 1, 3),),
        "lengths": (length(3, 100),),
    },
    "backfilled job counted": {
        "after": [row(1, 8, 100, [1, 8, 0, [[11, 5]], [[3, 3]]]), SECOND],
        "before": BOTH,
        "grants": (grant(3, 1, 3),),
        "lengths": (length(3, 100),),
    },
    "renewed until T": {
        "after": [LARGE],
        "jobs": [*JOBS, job(6, 12)],
        "leases": [DUE, LEASES[1]],
        "renewals": (renew(11, 5),),
        "lengths": (length(11, 200),),
    },
    "comes after": {"after": [*BOTH, BEHIND]},
    "new after another": {"before": BOTH, "after": [*BOTH, row(3, 3, 1000, *BEHIND[5], made_s=0)]},
    "ended at T": {
        "before": [row(1, 8, 0, *FIRST[5]), SECOND],
        "after": [SECOND],
        "grants": (grant(1, 1, 8),),
        **ended_for(11, 1, PreemptionRule.GUARANTEE),
    },
    "job is gone": {"before": BOTH, "after": [SECOND], "jobs": JOBS[1:]},
    "node is lost": {
        "before": BOTH,
        "after": [SECOND],
        "leases": LEASES[1:],
        "nodes": {**SIZES, 1: 0},
        "sizes": SIZES,
    },
    "node is lost, and a lease on the other node ends": {
        "before": [LARGE],
        "after": [],
        "jobs": [*JOBS, job(6, 12)],
        "leases": LEASES[1:],
        "nodes": {**SIZES, 1: 0},
        "sizes": SIZES,
        **ended_for(12, 3, PreemptionRule.PAYS),
    },
}


@pytest.mark.parametrize("name", GOOD)
def test_accepts_round(name: str) -> None:
    assert found(**GOOD[name]) == []


# Start of the expected text, and the round.
BAD: dict[str, tuple[str, dict[str, Any]]] = {
    "parts differ from sum": ("shape", {"after": [row(1, 8, 100, [1, 8, 2, [[11, 5]], []])]}),
    "gang differs": ("shape", {"after": [row(1, 7, 100, [1, 7, 2, [[11, 5]], []])]}),
    "two promises": ("shape: job 1 has 2", {"after": [FIRST, FIRST]}),
    "unknown job": ("shape", {"after": [row(9, 3, 100, [1, 3, 3, [], []])]}),
    "node twice": (
        "shape",
        {"after": [row(1, 8, 100, [1, 3, 3, [], []], [1, 5, 0, [[11, 5]], []])]},
    ),
    "below zero": ("shape", {"after": [row(3, 3, 100, [1, 3, -2, [[11, 5]], []])]}),
    "empty node": ("shape", {"after": [row(3, 3, 100, [3, 3, 3, [], []])]}),
    "job runs": ("waiting_job", {"after": [*BOTH, row(11, 5, 1000, [1, 5, 0, [[11, 5]], []])]}),
    "held but not free": ("held_gpus", {"after": [row(1, 8, 90, [1, 8, 8, [], []])]}),
    "held twice": ("held_gpus", {"after": [FIRST, row(3, 3, 100, [1, 3, 3, [], []])]}),
    "backfilled beyond T": (
        "held_gpus",
        {"grants": (grant(3, 1, 3),), "lengths": (length(3, 120),)},
    ),
    "freed and given away": (
        "held_gpus",
        {
            "leases": [DUE, LEASES[1]],
            "before": BOTH,
            "ends": (end(11),),
            "grants": (grant(4, 1, 4, tenant=3),),
        },
    ),
    "lent to two": (
        "held_gpus",
        {
            "after": [row(1, 8, 100, [1, 8, 3, [[11, 5]], []]), row(3, 3, 80, [1, 3, 3, [], []])],
            "grants": (grant(2, 1, 2),),
            "lengths": (length(2, 80),),
        },
    ),
    "pinned lease is over": ("pins", {"after": [row(1, 8, 100, [1, 8, 3, [[10, 5]], []])]}),
    "pinned twice": ("pins", {"after": [FIRST, row(3, 3, 100, [1, 3, 0, [[11, 3]], []])]}),
    "pinned on another node": ("pins", {"after": [row(3, 3, 200, [1, 3, 0, [[12, 3]], []])]}),
    "pinned beyond T": ("pins", {"after": [row(2, 2, 150, [2, 2, 0, [[12, 2]], []])]}),
    "renewed beyond T": (
        "pins",
        {
            "after": [LARGE],
            "jobs": [*JOBS, job(6, 12)],
            "leases": [DUE, LEASES[1]],
            "renewals": (renew(11, 5),),
        },
    ),
    "after no promise": ("after_others", {"after": [SECOND, BEHIND]}),
    "after too few GPUs": (
        "after_others",
        {"after": [SECOND, row(3, 3, 1200, [2, 3, 0, [], [[2, 3]]])]},
    ),
    "after twice": (
        "after_others",
        {
            "after": [
                row(2, 2, 200, [1, 2, 2, [], []]),
                row(3, 3, 1200, [1, 3, 1, [], [[2, 2]]]),
                row(4, 4, 1200, [1, 4, 0, [[11, 3]], [[2, 1]]]),
            ]
        },
    ),
    "within the lease ahead": (
        "after_others",
        {"after": [*BOTH, row(3, 3, 990, [1, 3, 0, [], [[1, 3]]])]},
    ),
    "after a longer lease": (
        "after_others",
        {
            "before": [row(1, 8, 0, *FIRST[5]), row(3, 3, 800, [1, 3, 0, [], [[1, 3]]])],
            "after": [row(3, 3, 800, [1, 3, 0, [], [[1, 3]]])],
            "leases": [DUE, LEASES[1]],
            "ends": (end(11),),
            "grants": (grant(1, 1, 8),),
        },
    ),
    "late": ("kept", {"before": [row(1, 8, 0, *FIRST[5])], "after": [row(1, 8, 0, *FIRST[5])]}),
    "dropped": ("kept", {"before": BOTH, "after": [SECOND]}),
    "moved to later": ("kept", {"before": BOTH, "after": [row(1, 8, 110, *FIRST[5]), SECOND]}),
    "made again": ("kept", {"before": BOTH, "after": [NEW, SECOND]}),
    "other place": (
        "kept",
        {"before": [row(1, 8, 300, [2, 8, 0, [[12, 8]], []])], "after": [FIRST]},
    ),
    "free but waits": (
        "kept",
        {"after": [row(1, 8, 100, [1, 8, 8, [], []])], "leases": LEASES[1:]},
    ),
    "due but waits": (
        "kept",
        {
            "after": [FIRST],
            "leases": [DUE, LEASES[1]],
            "renewals": (renew(11, 5),),
            "lengths": (length(11, 100),),
        },
    ),
    "new but older": ("new_promises", {"before": [SECOND], "after": BOTH}),
    "new, and job ended now": (
        "new_promises",
        {
            "before": [],
            "after": [row(11, 5, 0, [1, 5, 5, [], []], made_s=0)],
            "leases": [DUE, LEASES[1]],
            "ends": (end(11),),
        },
    ),
    "not owed": (
        "new_promises",
        {
            "before": [],
            "after": [row(5, 2, 100, [1, 2, 2, [], []], made_s=0)],
            "jobs": [*JOBS, job(5, 2, tenant=2)],
        },
    ),
    "later than a lease": (
        "new_promises",
        {"before": [], "after": [row(2, 2, 901, [1, 2, 2, [], []], made_s=0)]},
    ),
    "later than a lease after another": (
        "new_promises",
        {"before": [FIRST], "after": [FIRST, row(3, 3, 1001, *BEHIND[5], made_s=0)]},
    ),
    "over quota": ("new_promises", {"before": [SECOND], "after": [NEW, SECOND], "quota": 9}),
    "over quota for a gang": (
        "new_promises",
        {"before": [SECOND], "after": [NEW, SECOND], "quota": 2},
    ),
    "pinned lease is taken": (
        "early_ends",
        {"before": BOTH, **ended_for(11, 3, PreemptionRule.PAYS)},
    ),
    "pinned lease moves": (
        "early_ends",
        {"before": BOTH, **ended_for(11, 3, PreemptionRule.DEFRAGMENT)},
    ),
    "ended before T": (
        "early_ends",
        {"before": BOTH, **ended_for(11, 1, PreemptionRule.GUARANTEE)},
    ),
    "ended for another job": (
        "early_ends",
        {
            "before": [row(1, 8, 0, *FIRST[5]), SECOND],
            **ended_for(11, 3, PreemptionRule.GUARANTEE),
        },
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_reports_breach(name: str) -> None:
    expected, fields = BAD[name]
    texts = found(**fields)
    assert any(text.startswith(expected) for text in texts), texts


class TestCandidate:
    """Job 1 is the candidate of tenant 1, and job 4 that of tenant 3, which is owed too."""

    OTHER = row(4, 4, 200, [2, 4, 0, [[12, 4]], []])

    def followed(self, number: int, since_s: int, **fields: Any) -> tuple[Followed, list[str]]:
        """Check a round in which a job has been the candidate since `since_s`.

        Return the result, and the breaches of the bound.
        """
        one = Candidate(number, 1, (1, TYPE), at(since_s))
        state = Followed(sizes=SIZES, candidates={number: one})
        state.add(*one_round(**fields))
        return state, [text for text in state.breaches if ": bound: " in text]

    def test_without_promise_is_reported(self) -> None:
        texts = follow([one_round([], [self.OTHER])]).breaches
        assert any("candidate: job 1 of owed tenant 1" in text for text in texts), texts

    def test_with_promise_is_accepted(self) -> None:
        made = [row(1, 8, 100, *FIRST[5], made_s=0), row(4, 4, 200, *self.OTHER[5], made_s=0)]
        followed = follow([one_round([], made)])
        assert followed.breaches == []
        assert followed.promises == 2
        assert {one.job for one in followed.waits if one.is_promised} == {1, 4}

    def test_blocked_by_own_promises_is_accepted(self) -> None:
        followed = follow([one_round([FIRST, self.OTHER], [FIRST, self.OTHER], quota=8)])
        assert followed.breaches == []
        blocked = followed.candidates[2]
        assert (blocked.is_blocked, blocked.chain) == (True, 1)

    def test_that_waited_longer_goes_first(self) -> None:
        made = [row(2, 2, 200, *SECOND[5], made_s=0), row(4, 4, 200, *self.OTHER[5], made_s=0)]
        texts = follow([one_round([], made)]).breaches
        assert any("job 1 has waited longer than job 2" in text for text in texts), texts

    def test_that_just_came_has_time_until_next_round(self) -> None:
        jobs = [job(1, 8, after_s=-5), *JOBS[4:]]
        assert follow([one_round([], [], jobs=jobs)]).breaches == []

    @pytest.mark.parametrize(("since_s", "late"), [(-920, 0), (-921, 1)])
    def test_starts_within_bound(self, since_s: int, late: int) -> None:
        assert len(self.followed(1, since_s, after=[FIRST, self.OTHER])[1]) == late

    @pytest.mark.parametrize(("since_s", "late"), [(-1830, 0), (-1831, 1)])
    def test_bound_counts_chain(self, since_s: int, late: int) -> None:
        behind = row(3, 3, 1000, *BEHIND[5], made_s=0)
        before = [FIRST, self.OTHER]
        followed, texts = self.followed(3, since_s, before=before, after=[*before, behind])
        assert len(texts) == late
        assert followed.candidates[3].chain == 1

    def test_wait_until_late_start_is_reported(self) -> None:
        before = [row(1, 8, 0, *FIRST[5]), self.OTHER]
        followed, texts = self.followed(
            1, -2000, before=before, after=[self.OTHER], leases=[DUE, LEASES[1]],
            ends=(end(11),), grants=(grant(1, 1, 8),),
        )  # fmt: skip # rows of what belongs together
        assert len(texts) == 1
        assert followed.started[0].is_over
