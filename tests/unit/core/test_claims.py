"""Test which GPU type a waiting job claims if it can run on several."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import Change, ChangeKind, Service
from evenshare_core.fairness.claims import accepted_types, move_claims, reported_type_first
from evenshare_core.fairness.gpu_time import Sums

K = ChangeKind
CAPACITY = {"k80": 4, "p100": 8, "v100": 8}


def sums(quotas: dict[str, int], jobs: list[tuple[Job, str]]) -> Sums:
    """Return the sums of tenant 1, with quotas by type and jobs with their first claims."""
    new = Sums(Service(0), CAPACITY)
    for name, gpus in quotas.items():
        new.apply(Change(0, K.QUOTA, 1, gpus=gpus, gpu_types=(name,)), 0)
    for job, claimed in jobs:
        new.apply(Change(0, K.ACTIVE, 1, job.id, job.gpus, (claimed,), job.weight), 0)
    return new


def job(id_: int, gpus: int, *gpu_types: str, submitted_us: int = 0) -> Job:
    return Job(id_, 1, gpus, submitted_us, gpu_types)


def claimed(new: Sums) -> dict[int, str]:
    return {key: row.gpu_type for key, row in new.jobs.items()}


class TestMoveClaims:
    def test_moves_demand_above_quota_to_other_type(self) -> None:
        jobs = [(job(1, 4), "k80"), (job(2, 4), "k80"), (job(3, 4), "k80")]
        new = sums({"k80": 4, "v100": 4}, jobs)
        move_claims(new, [row for row, _ in jobs], 0)
        assert claimed(new) == {1: "v100", 2: "k80", 3: "k80"}
        assert {key[1]: row.demand for key, row in new.claims.items()} == {"k80": 8, "v100": 4}

    def test_keeps_claims_without_gain(self) -> None:
        jobs = [(job(1, 4), "k80"), (job(2, 4, "k80", "p100"), "k80")]
        new = sums({"k80": 8, "v100": 4}, jobs)
        move_claims(new, [row for row, _ in jobs], 0)
        assert claimed(new) == {1: "k80", 2: "k80"}

    def test_keeps_gang_off_types_that_are_too_small(self) -> None:
        new = sums({"v100": 2, "k80": 4}, [(job(1, 6), "v100")])
        move_claims(new, [job(1, 6)], 0)
        assert claimed(new) == {1: "v100"}

    def test_moved_job_keeps_deserved_gpu_time(self) -> None:
        jobs = [(job(1, 4), "k80"), (job(2, 4), "k80")]
        new = sums({"k80": 4, "v100": 4}, jobs)
        move_claims(new, [row for row, _ in jobs], 100)
        new.freeze(150, 0)
        row = new.jobs[1]
        integral = new.claims[1, row.gpu_type].classes[row.demand, row.weight].fair_gpu_us
        assert row.gpu_type == "v100"
        # The tenant deserves half of 4 GPUs for the 100 us in which both jobs claimed K80s, then 4
        # GPUs for 50 us.
        assert integral - row.baseline_gpu_us == 200 + 200

    def test_running_job_claims_type_it_holds(self) -> None:
        new = sums({"k80": 4, "v100": 4}, [(job(1, 4), "k80"), (job(2, 4), "k80")])
        new.apply(Change(10, K.HOLD, 1, 1, 4, ("v100",)), 10)
        move_claims(new, [job(1, 4), job(2, 4)], 20)
        assert claimed(new) == {1: "v100", 2: "k80"}

    @given(st.integers(0, 10**6))
    def test_no_single_move_increases_deserved_gpus(self, seed: int) -> None:
        """The order of the jobs does not change the result, nor does a second run."""
        rng = random.Random(seed)  # noqa: S311 - a seeded case, not a secret
        names = tuple(CAPACITY)
        jobs = []
        for index in range(1, rng.randint(2, 12)):
            types = rng.choice(((), names[:2], names[1:], (rng.choice(names),)))
            row = job(index, rng.choice((1, 2, 4, 8)), *types, submitted_us=rng.randrange(5))
            jobs.append((row, rng.choice(types or names)))
        quotas = {name: rng.randrange(12) for name in names}
        first, second = sums(quotas, jobs), sums(quotas, jobs)
        waiting = [row for row, _ in jobs]
        move_claims(first, waiting, 0)
        move_claims(second, rng.sample(waiting, len(waiting)), 0)
        assert claimed(first) == claimed(second)
        demand = dict.fromkeys(names, 0)
        for row, _ in jobs:
            demand[claimed(first)[row.id]] += row.gpus
        shares = {name: row.demand for (_, name), row in first.claims.items()}
        assert {name: shares.get(name, 0) for name in names} == demand
        deserved = sum(min(demand[name], quotas[name]) for name in names)
        for row, _ in jobs:
            for name in accepted_types(row, CAPACITY):
                if row.gpus <= CAPACITY[name]:
                    after = dict(demand)
                    after[claimed(first)[row.id]] -= row.gpus
                    after[name] += row.gpus
                    assert sum(min(after[n], quotas[n]) for n in names) <= deserved


class TestReportedTypes:
    def test_claimed_type_comes_first_unless_too_small(self) -> None:
        assert reported_type_first(CAPACITY, job(1, 4), "p100") == ("p100", "k80", "v100")
        assert reported_type_first(CAPACITY, job(1, 8), "k80") == ("p100", "k80", "v100")
        assert reported_type_first(CAPACITY, job(1, 64), "k80") == ("k80", "p100", "v100")
        assert reported_type_first(CAPACITY, job(1, 1, "t4"), "t4") == ("t4",)
        assert reported_type_first(CAPACITY, job(1, 1, "t4", "v100"), "t4") == ("v100",)
