"""Profiling runs under UniSched: after deadlines, before best-effort jobs, on one node.

Source: W. Gao et al., "UniSched", IEEE TC 2024, III-A and III-C2; docs/pools.md.
"""

from __future__ import annotations

import msgspec

from evenshare_core.domain.snapshot import Snapshot, schema_of
from evenshare_core.domain.values import canonical_bytes, decode
from evenshare_core.policies.base import decide_round
from tests.papers.deadline_pools import asked, started

POLICY = "unisched"
LEASE_S = 600


def profiled(
    *rows: tuple[int, int | None, tuple[int, ...]], last: int, **fields: object
) -> Snapshot:
    """Return a round in which the last job, which takes 150 s, is a profiling run."""
    return asked(POLICY, *rows, profilers=(last,), **fields)


class TestProfilingRun:
    def test_starts_before_shorter_best_effort_jobs(self) -> None:
        one = profiled((4, 10, ()), (2, 3600, ()), last=2)
        assert started(decide_round(one)) == [2]
        assert started(decide_round(asked(POLICY, (4, 10, ()), (2, 3600, ())))) == [1]

    def test_waits_if_deadline_needs_gpus(self) -> None:
        one = profiled((4, LEASE_S, (LEASE_S,)), (2, 150, ()), last=2, lease_us=LEASE_S * 10**6)
        decision = decide_round(one)
        assert started(decision) == [1]
        assert decision.answers[0].state == "planned"

    def test_grant_notes_profiler(self) -> None:
        (grant,) = decide_round(profiled((2, 150, ()), last=1)).grants
        assert grant.key.note == "profiler"

    def test_uses_one_node_if_it_fits(self) -> None:
        placed = decide_round(profiled((2, 150, ()), last=1, nodes={1: 1, 2: 3})).grants
        assert [grant.placement for grant in placed] == [((2, 2),)]


class TestSnapshot:
    def test_is_unchanged_without_profiling_runs(self) -> None:
        rows = msgspec.json.decode(canonical_bytes(asked(POLICY, (2, 150, ()), schema=2)))
        assert len(rows) == Snapshot.__struct_fields__.index(Snapshot.newest[0])

    def test_round_trips_as_version_9_with_profiling_runs(self) -> None:
        one = profiled((2, 150, ()), last=1, schema=schema_of((), profilers=(1,)))
        assert one.schema == 9
        assert decode(canonical_bytes(one), Snapshot) == one
