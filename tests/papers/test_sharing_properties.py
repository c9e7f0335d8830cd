"""Properties of the rounds of each sharing policy on random pools."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from benchmarks.ltgf_pool import advanced, pool
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import canonical_bytes, decode, sha256_hex
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.registry import policy
from evenshare_core.policies.sharing.job_types import read_job_types
from evenshare_core.policies.sharing.picks import SharingPicks

# no time limit per example, because the first solution of a solver takes longer than later ones
calm = settings(deadline=None)
ROOT = Path(__file__).resolve().parents[2]
POLICIES = ("oef", "gavel", "max_min", "max_efficiency")
TYPES = ("k80", "p100", "v100")


def mixed(seed: int, **fields: Any) -> Snapshot:
    """Draw a pool of three types with profiles, and jobs that accept one, some or all types."""
    snapshot = pool(seed=seed, gpu_types=TYPES, **fields)
    rng = random.Random(seed)  # noqa: S311 - a seeded pool, not a secret
    profiles = tuple(
        Profile(
            index,
            1 + index % len(snapshot.tenants),
            tuple((name, rng.choice((0, 1000, 1500, 4000))) for name in TYPES),
            rng.randint(1, 3),
        )
        for index in range(1, 9)
    )
    held = {lease.job for lease in snapshot.leases}
    jobs = []
    for job in snapshot.jobs:
        mine = [0] + [row.id for row in profiles if row.tenant == job.tenant]
        accepted = job.gpu_types if job.id in held else rng.choice((job.gpu_types, (), TYPES[1:]))
        jobs.append(replace(job, profile=rng.choice(mine), gpu_types=accepted))
    return replace(
        snapshot, jobs=tuple(jobs), profiles=profiles, policy="oef",
        policy_version=policy("oef").version, options={},
    )  # fmt: skip


@st.composite
def rounds(draw: st.DrawFn, *, limits: bool = True) -> Snapshot:
    name = draw(st.sampled_from(POLICIES))
    options: dict[str, Any] = {
        "job_order": draw(st.sampled_from(["starvation", "arrival"])),
        "reserve_after_leases": draw(st.integers(0, 2)),
        "spread": draw(st.booleans()),
    }
    if name == "oef":
        options["environment"] = draw(st.sampled_from(["cooperative", "noncooperative"]))
    if name == "gavel":
        options["time_fractions"] = draw(st.booleans())
    snapshot = mixed(
        draw(st.integers(0, 10**6)),
        nodes=draw(st.integers(1, 9)),
        tenants=draw(st.integers(1, 5)),
        pending=draw(st.integers(0, 40)),
        fill=draw(st.sampled_from([0.0, 0.5, 0.9, 1.0])),
        expired=draw(st.sampled_from([0.0, 0.3, 1.0])),
        limits=limits and draw(st.booleans()),
    )
    return replace(snapshot, policy=name, options=options)


class TestRoundInvariants:
    """`decide_round` checks the invariants of every decision: capacity, gangs, leases, reasons."""

    @calm
    @given(rounds())
    def test_leaves_unexpired_leases_unchanged(self, snapshot: Snapshot) -> None:
        decision = decide_round(snapshot)
        due = {lease.id for lease in snapshot.leases if lease.ends_by(snapshot.at_us)}
        assert {end.lease for end in decision.ends} <= due
        assert {row.lease for row in decision.renewals} <= due

    @calm
    @given(rounds())
    def test_grants_only_types_with_profile_speed(self, snapshot: Snapshot) -> None:
        profiles = {row.id: row for row in snapshot.profiles}
        jobs = {job.id: job for job in snapshot.jobs}
        for grant in decide_round(snapshot).grants:
            row = profiles.get(jobs[grant.job].profile)
            assert row is None or row.speed_milli(grant.gpu_type) > 0

    @calm
    @given(rounds())
    def test_keeps_ideals_within_capacity(self, snapshot: Snapshot) -> None:
        decision = decide_round(snapshot)
        capacity: Counter[str] = Counter()
        for node in snapshot.nodes:
            capacity[node.gpu_type] += node.gpus
        for gpu_type in TYPES:
            used = sum(row.gpus for row in decision.ideals if row.gpu_type == gpu_type)
            assert used <= capacity[gpu_type] + 1e-9
        quotas = {row.tenant for row in snapshot.entitlements if row.gpus}
        assert {row.tenant for row in decision.ideals} <= quotas

    @calm
    @given(rounds(), st.randoms(use_true_random=False))
    def test_ignores_row_order(self, snapshot: Snapshot, rng: random.Random) -> None:
        ready = advanced(snapshot)

        def shuffled(rows: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(rng.sample(rows, len(rows)))

        mixed_up = replace(
            ready,
            **{
                name: shuffled(getattr(ready, name))
                for name in ("nodes", "tenants", "entitlements", "jobs", "leases", "profiles")
            },
        )
        assert canonical_bytes(decide_round(mixed_up)) == canonical_bytes(decide_round(ready))

    @calm
    @given(rounds())
    def test_round_trips_json(self, snapshot: Snapshot) -> None:
        again = decode(canonical_bytes(snapshot), Snapshot)
        first = canonical_bytes(decide_round(snapshot))
        assert canonical_bytes(decide_round(again)) == first
        assert canonical_bytes(decode(first, Decision)) == first

    @given(rounds(limits=False))
    def test_is_work_conserving(self, snapshot: Snapshot) -> None:
        """No job waits if its gang fits on the free GPUs of a type that it accepts."""
        options = {**snapshot.options, "reserve_after_leases": 0, "spread": False}
        decision = decide_round(replace(snapshot, options=options))
        free = {node.id: node.gpus for node in snapshot.nodes}
        types = {node.id: node.gpu_type for node in snapshot.nodes}
        ended = {end.lease for end in decision.ends}
        placements = [row.placement for row in snapshot.leases if row.id not in ended]
        for placement in [*placements, *(grant.placement for grant in decision.grants)]:
            for node, count in placement:
                free[node] -= count
        profiles = {row.id: row for row in snapshot.profiles}
        waiting = {job for skip in decision.skips for job in skip.jobs}
        for job in snapshot.jobs:
            row = profiles.get(job.profile)
            for node, count in free.items():
                accepts = not job.gpu_types or types[node] in job.gpu_types
                if job.id in waiting and accepts and (row is None or row.speed_milli(types[node])):
                    assert job.gpus > count


class TestDeterminism:
    SCRIPT = """
import sys
from tests.papers.test_sharing_properties import told
for name in sys.argv[1:]:
    print(told(name))
"""

    @pytest.mark.parametrize("seed", ["0", "12345"])
    def test_decisions_are_independent_of_hash_seed(self, seed: str) -> None:
        result = subprocess.run(
            [sys.executable, "-c", self.SCRIPT, *POLICIES],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert result.stdout.split() == [told(name) for name in POLICIES]


def told(name: str) -> str:
    """Return the hash of a decision about a medium-sized pool."""
    snapshot = mixed(5, nodes=12, tenants=5, pending=60, fill=0.8, expired=0.5, limits=True)
    return sha256_hex(canonical_bytes(decide_round(replace(snapshot, policy=name))))


@pytest.mark.parametrize(("version", "same"), [("6 highs 1", True), ("5 highs 1", False)])
def test_price_that_refuses_nothing_makes_no_kind(version: str, same: bool) -> None:
    """A tenant that recomputes a round may not see such a price. Version 5 replays unchanged."""
    made = mixed(1, nodes=3, tenants=2, pending=5, fill=0.5, expired=0.0)
    snapshot = replace(made, policy_version=version)
    types, (job_type, *_) = read_job_types(snapshot, by_starvation=True)
    picks = SharingPicks(snapshot, types, spread=False)
    plain = replace(snapshot.jobs[0], max_price_micro=None)
    dear = replace(plain, max_price_micro=10**12)
    assert (picks.kind_of(job_type, plain) == picks.kind_of(job_type, dear)) is same
