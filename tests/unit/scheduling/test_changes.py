"""Test that rows and the sums' state give the same timed changes for any order of recording."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import Change, ChangeKind, JobService, Service
from evenshare_core.fairness.gpu_time import advance
from scheduling.engine.changes import JobFacts, LeaseHold, timed_changes

K = ChangeKind


def known(job: int, held: int = 0) -> JobService:
    return JobService(job, 1, "v100", 4, 1, 0, 0, held, 0)


def facts(job: int, submitted_us: int = 0, ended_us: int | None = None) -> JobFacts:
    return JobFacts(Job(job, 1, 4, submitted_us, ("v100",)), ended_us)


def steps(changes: list[Change]) -> list[tuple[int, ChangeKind]]:
    return [(change.at_us, change.kind) for change in changes]


CASES = [
    ("a job arrives", [], [facts(7, 130)], [], [(130, K.ACTIVE)]),
    ("a job waits on", [known(7)], [facts(7)], [], []),
    ("a job starts", [known(7)], [facts(7)], [LeaseHold(7, 4, 100, None, "v100")], [(100, K.HOLD)]),
    ("a job runs on", [known(7, 4)], [facts(7)], [LeaseHold(7, 4, 50, None, "v100")], []),
    (
        "a job is preempted",
        [known(7, 4)],
        [facts(7)],
        [LeaseHold(7, 4, 50, 100, "v100")],
        [(100, K.RELEASE)],
    ),
    (
        "a job is moved at one instant",
        [known(7, 4)],
        [facts(7)],
        [LeaseHold(7, 4, 50, 100, "v100"), LeaseHold(7, 4, 100, None, "v100")],
        [(100, K.RELEASE), (100, K.HOLD)],
    ),
    (
        "a job ends",
        [known(7, 4)],
        [facts(7, ended_us=150)],
        [LeaseHold(7, 4, 50, 150, "v100")],
        [(150, K.RELEASE), (150, K.INACTIVE)],
    ),
    (
        "a job is held and released between two rounds",
        [known(7)],
        [facts(7, 140)],
        [],
        [(140, K.INACTIVE), (140, K.ACTIVE)],
    ),
    (
        "a job is preempted, held and released between two rounds",
        [known(7, 4)],
        [facts(7, 140)],
        [LeaseHold(7, 4, 50, 120, "v100")],
        [(120, K.RELEASE), (140, K.INACTIVE), (140, K.ACTIVE)],
    ),
    (
        "a job comes and goes between two rounds",
        [],
        [facts(7, 110, 190)],
        [LeaseHold(7, 4, 120, 190, "v100")],
        [(110, K.ACTIVE), (120, K.HOLD), (190, K.RELEASE), (190, K.INACTIVE)],
    ),
    ("a job is cancelled while it waits", [known(7)], [facts(7, 0, 140)], [], [(140, K.INACTIVE)]),
    (
        "an end is recorded late: it counts from the last round",
        [known(7, 4)],
        [facts(7, 0, 60)],
        [],
        [(100, K.RELEASE), (100, K.INACTIVE)],
    ),
    (
        "a start is recorded late: it counts from the last round",
        [known(7)],
        [facts(7)],
        [LeaseHold(7, 4, 60, None, "v100")],
        [(100, K.HOLD)],
    ),
    (
        "a start is reported for after the round: it counts from the round",
        [known(7)],
        [facts(7)],
        [LeaseHold(7, 4, 230, None, "v100")],
        [(200, K.HOLD)],
    ),
    (
        "a job came and ended before the first round",
        [],
        [facts(7, 10, 90)],
        [LeaseHold(7, 4, 20, 90, "v100")],
        [],
    ),
]


@pytest.mark.parametrize(
    ("before", "jobs", "holds", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_differences_become_timed_changes(
    before: list[JobService],
    jobs: list[JobFacts],
    holds: list[LeaseHold],
    expected: list[tuple[int, ChangeKind]],
) -> None:
    assert steps(timed_changes(Service(100, jobs=tuple(before)), jobs, holds, 200)) == expected


times = st.integers(0, 300)


@st.composite
def lives(draw: st.DrawFn) -> tuple[JobFacts, list[LeaseHold]]:
    """Draw a job's history: its submission, leases one after another, and perhaps its end."""
    job = draw(st.integers(1, 5))
    points = sorted(draw(st.lists(times, min_size=1, max_size=7)))
    submitted, rest = points[0], points[1:]
    ends = draw(st.booleans())
    types = st.sampled_from(("v100", "k80"))
    pairs = zip(rest[::2], rest[1::2], strict=False)
    holds = [LeaseHold(job, 4, a, b, draw(types)) for a, b in pairs]
    if len(rest) % 2 and not ends:
        holds.append(LeaseHold(job, 4, rest[-1], None, draw(types)))
    return facts(job, submitted, points[-1] if ends else None), holds


@given(
    st.lists(lives(), max_size=5, unique_by=lambda life: life[0].job.id),
    st.lists(times, max_size=4),
)
def test_changes_of_all_rounds_sum_to_held_gpu_time(
    world: list[tuple[JobFacts, list[LeaseHold]]], rounds: list[int]
) -> None:
    """Each round sees the rows without later starts and ends, as its snapshot does."""
    service = Service(0)
    for at in sorted(set(rounds) | {301}):
        jobs, holds = [], []
        for life, held in world:
            if life.job.submitted_us > at or at <= service.at_us:
                continue
            over = life.ended_us is not None and life.ended_us <= at
            tracked = any(job.job == life.job.id for job in service.jobs)
            if over and not tracked and (life.ended_us or 0) <= service.at_us:
                continue
            jobs.append(life if over else JobFacts(life.job))
            holds += [
                hold if hold.ended_us is not None and hold.ended_us <= at else _running(hold)
                for hold in held
                if hold.started_us <= at
                and (hold.ended_us is None or hold.ended_us >= service.at_us)
            ]
        changes = timed_changes(service, jobs, holds, at)
        service = advance(service, sorted(changes, key=lambda change: change.at_us), at)
    received = {
        job.job: job.alloc_gpu_us + job.held * (301 - job.held_since_us) for job in service.jobs
    }
    for life, held in world:
        if life.ended_us is None:
            expected = sum(
                4 * ((301 if h.ended_us is None else h.ended_us) - h.started_us) for h in held
            )
            assert received[life.job.id] == expected


def _running(hold: LeaseHold) -> LeaseHold:
    return LeaseHold(hold.job, hold.gpus, hold.started_us, None, hold.gpu_type)
