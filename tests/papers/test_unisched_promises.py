"""UniSched keeps its plans if nothing unforeseen happens."""

from __future__ import annotations

import json
from random import Random

import msgspec
import pytest

from evenshare_core.domain.deadlines import (
    Deadline,
    DeadlineAnswer,
    DeadlineClass,
    DeadlineState,
    DeadlineStep,
)
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import Change, ChangeKind, Snapshot
from evenshare_core.policies.base import decide_round
from evenshare_core.units import MINUTE_US, REWARD_MICRO, SECOND_US
from tests.papers.unisched_pools import SLOT, asked, estimates, strict
from tests.unit.core.snapshots import AT_US, job, lease


def ends(seed: int) -> tuple[dict[int, DeadlineAnswer], dict[int, int]]:
    """Return the first answer and the end of each job of a crowded pool."""
    rng = Random(seed)  # noqa: S311 - a test's seed
    jobs = [
        job(number, rng.choice((1, 2, 4, 8)), estimate_us=rng.randint(1, 40) * MINUTE_US)
        for number in range(1, 15)
    ]
    rows = [strict(one.id, int((one.estimate_us or 0) * rng.uniform(1.0, 4))) for one in jobs]
    return played(asked(jobs, rows, nodes={1: 8, 2: 8}, round_us=SLOT))


def played(pool: Snapshot) -> tuple[dict[int, DeadlineAnswer], dict[int, int]]:
    """Return each job's first answer and end, with exact estimates and one round per slot."""
    jobs, rows = pool.jobs, pool.deadlines
    left = {one.id: one.estimate_us or 0 for one in jobs}
    held: dict[int, Lease] = {}
    first: dict[int, DeadlineAnswer] = {}
    over: dict[int, int] = {}
    while left:
        at_us = pool.at_us
        decision = decide_round(pool)
        for answer in decision.answers:
            first.setdefault(answer.job, answer)
        changes = []
        for end in decision.ends:
            del held[end.job]
            changes.append(Change(at_us, ChangeKind.RELEASE, 1, end.job))
        for row in decision.renewals:
            held[row.job] = msgspec.structs.replace(held[row.job], expires_us=at_us + SLOT)
        for grant in decision.grants:
            number = 1000 * pool.number + grant.job
            new = lease(number, grant.job, *grant.placement, expires_us=at_us + SLOT)
            held[grant.job] = msgspec.structs.replace(new, started_us=at_us)
            hold = Change(at_us, ChangeKind.HOLD, 1, grant.job, new.gpus, ("v100",))
            changes.append(hold)
        for number in sorted(held, key=lambda one: (left[one], one)):
            if left[number] <= SLOT:
                over[number] = at_us + left.pop(number)
                del held[number]
                changes.append(Change(over[number], ChangeKind.INACTIVE, 1, number))
            else:
                left[number] -= SLOT
        pool = msgspec.structs.replace(
            pool, at_us=at_us + SLOT, number=pool.number + 1, changes=tuple(changes),
            jobs=tuple(one for one in jobs if one.id in left),
            deadlines=tuple(row for row in rows if row.id in left),
            estimates=estimates(one for one in jobs if one.id in left),
            leases=tuple(sorted(held.values(), key=lambda row: row.id)),
            service=decision.service, memory=json.loads(json.dumps(decision.memory)),
        )  # fmt: skip
    return first, over


@pytest.mark.parametrize("seed", range(6))
def test_planned_deadlines_are_met_without_disturbance(seed: int) -> None:
    first, over = ends(seed)
    planned = [row for row in first.values() if row.state is DeadlineState.PLANNED]
    assert planned
    assert [row.job for row in planned if over[row.job] > row.by_us] == []


class TestPromises:
    """Of two plans with the same reward, the policy chooses the one that keeps earlier promises."""

    ROWS = {  # job: GPUs, work in slots of 300 s, deadlines in seconds
        1: (8, 3, (1359,)),
        2: (1, 1, (1062,)),
        3: (3, 1, (597, 678, 846)),
        4: (8, 4, (1689,)),
        5: (4, 2, (729, 1026, 1464)),
        6: (4, 4, ()),
    }
    SOFT = {
        1: (3, 4, (1284,)),
        2: (6, 3, (921,)),
        3: (4, 2, (948, 1212, 1434)),
        4: (4, 2, (765, 945, 1401)),
        5: (2, 2, (1095,)),
        6: (6, 1, (300, 810)),
    }

    @pytest.mark.parametrize("drawn", [ROWS, SOFT])
    def test_survive_jobs_of_equal_reward(
        self, drawn: dict[int, tuple[int, int, tuple[int, ...]]]
    ) -> None:
        jobs = [job(number, row[0], estimate_us=row[1] * SLOT) for number, row in drawn.items()]
        rows = [
            Deadline(
                number,
                DeadlineClass.SOFT if len(ends_s) > 1 else DeadlineClass.STRICT,
                tuple(
                    DeadlineStep(AT_US + end_s * SECOND_US, (100 - 25 * place) * REWARD_MICRO)
                    for place, end_s in enumerate(ends_s)
                ),
            )
            for number, (_, _, ends_s) in drawn.items()
            if ends_s
        ]
        first, over = played(asked(jobs, rows, nodes={1: 8, 2: 4}, round_us=SLOT))
        planned = [row for row in first.values() if row.state is DeadlineState.PLANNED]
        assert len(planned) >= 4
        assert [row.job for row in planned if over[row.job] > row.by_us] == []
