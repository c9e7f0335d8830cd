"""Test the GPU-time of ended jobs against its definition in exact fractions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.domain.snapshot import Change, ChangeKind, Service
from evenshare_core.domain.values import canonical_bytes, decode
from evenshare_core.fairness.ended import ended_jobs
from evenshare_core.fairness.gpu_time import advance
from tests.unit.core.test_gpu_time import Plain, active, histories, quota

HOLD, INACTIVE = ChangeKind.HOLD, ChangeKind.INACTIVE


@given(histories(), st.data())
def test_matches_exact_fractions_of_a_history_in_two_rounds(
    changes: list[Change], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(changes)))
    cut_us = max([0, *(change.at_us for change in changes[:cut])])
    before = advance(Service(at_us=0), changes[:cut], cut_us)
    ended = ended_jobs(decode(canonical_bytes(before), Service), changes[cut:], {})
    plain = Plain()
    for change in changes:
        plain.apply(change)
    assert set(ended) == {row.job for row in changes[cut:] if row.kind is INACTIVE}
    for job, row in ended.items():
        assert row.received_gpu_us == plain.job_alloc[job]
        # A cut between two changes adds an interval, in which the share is rounded down once more.
        assert -1 < plain.job_fair[job] - row.deserved_gpu_us < 2 + plain.intervals[job]


def test_rho_counts_queueing_until_the_end() -> None:
    """2 of 4 GPUs are deserved from 0 on, and held from 100 to 200: rho is 1/2."""
    changes = [
        quota(0, 4),
        active(0, 1, 2),
        Change(100, HOLD, 1, 1, 2),
        Change(200, INACTIVE, 1, 1),
    ]
    assert ended_jobs(Service(at_us=0), changes, {"v100": 4})[1].rho == pytest.approx(0.5)


def test_rho_is_none_without_quota() -> None:
    changes = [quota(0, 0), active(0, 1, 2), Change(9, INACTIVE, 1, 1)]
    assert ended_jobs(Service(at_us=0), changes, {})[1].rho is None
