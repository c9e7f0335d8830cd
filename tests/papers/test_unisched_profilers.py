"""Profiling runs under UniSched: after deadlines, before best-effort jobs, on one node.

Source: W. Gao et al., "UniSched", IEEE TC 2024, III-A and III-C2; docs/adr/0193-profiling-runs.md.
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


class TestAProfilingRun:
    def test_begins_before_best_effort_jobs_however_short(self) -> None:
        one = profiled((4, 10, ()), (2, 3600, ()), last=2)
        assert started(decide_round(one)) == [2]
        assert started(decide_round(asked(POLICY, (4, 10, ()), (2, 3600, ())))) == [1]

    def test_waits_where_a_deadline_needs_the_gpus(self) -> None:
        one = profiled((4, LEASE_S, (LEASE_S,)), (2, 150, ()), last=2, lease_us=LEASE_S * 10**6)
        decision = decide_round(one)
        assert started(decision) == [1]
        assert decision.answers[0].state == "planned"

    def test_says_by_its_note_what_it_is(self) -> None:
        (grant,) = decide_round(profiled((2, 150, ()), last=1)).grants
        assert grant.key.note == "profiler"

    def test_begins_on_one_node_where_one_has_room(self) -> None:
        placed = decide_round(profiled((2, 150, ()), last=1, nodes={1: 1, 2: 3})).grants
        assert [grant.placement for grant in placed] == [((2, 2),)]


class TestASnapshot:
    def test_without_runs_keeps_its_bytes(self) -> None:
        rows = msgspec.json.decode(canonical_bytes(asked(POLICY, (2, 150, ()), schema=2)))
        assert len(rows) == Snapshot.__struct_fields__.index(Snapshot.newest[0])

    def test_with_runs_is_of_version_9_and_comes_back(self) -> None:
        one = profiled((2, 150, ()), last=1, schema=schema_of((), profilers=(1,)))
        assert one.schema == 9
        assert decode(canonical_bytes(one), Snapshot) == one
