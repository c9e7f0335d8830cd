"""Test the bands of prices in the next hours: quantiles of runs, or none if unreliable."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.snapshot import Snapshot, Surcharge
from evenshare_core.simulation.present import Start, Work
from evenshare_core.simulation.price_outlook import (
    NoPriceBand,
    PriceOutlook,
    estimate_prices,
    quantiles,
)
from evenshare_core.simulation.starts import RUNS, EndedJob, History
from evenshare_core.units import CREDIT_MICRO, HOUR_US, MINUTE_US
from tests.unit.core.snapshots import AT_US, job, lease, snapshot

QUARTER_US = 15 * MINUTE_US


def asked(**rest: Any) -> Snapshot:
    """Return a round: tenant 1 (quota 4) holds all 8 GPUs, and tenant 2 waits for as many."""
    jobs = [job(1, 8), job(2, 8, tenant=2)]
    held = lease(1, 1, (1, 8), own=4, borrowed=4, expires_us=AT_US + HOUR_US)
    quotas = (Entitlement(1, "v100", 4), Entitlement(2, "v100", 4))
    fields: dict[str, Any] = {
        "nodes": {1: 8},
        "quotas": quotas,
        "round_us": MINUTE_US,
        "price_micro": CREDIT_MICRO,
    }
    return snapshot(jobs, [held], **{**fields, **rest})


def outlook(
    snap: Snapshot, *, ended: int = 20, seed: int = 1, stop_after: int = 10**9
) -> PriceOutlook:
    rng = Random(seed)  # noqa: S311 - draws, not secrets
    asked_times = iter(range(10**9))
    history = History(tuple(EndedJob(1, minutes * MINUTE_US) for minutes in range(1, ended + 1)))
    work = {row.id: Work(HOUR_US) for row in snap.jobs}
    return estimate_prices(
        Start(snap, work), history, step_us=QUARTER_US, points=8, rng=rng,
        stop=lambda _: next(asked_times) >= stop_after,
    )  # fmt: skip


class TestQuantiles:
    def test_are_ranks_2_10_and_18_of_19_runs(self) -> None:
        assert quantiles(range(1, RUNS + 1)) == (2, 10, 18)

    @given(st.lists(st.integers(0, 10**9), min_size=RUNS, max_size=RUNS))
    def test_are_ordered_input_values(self, values: list[int]) -> None:
        low, middle, high = quantiles(values)
        assert low <= middle <= high
        assert {low, middle, high} <= set(values)


class TestBands:
    def test_have_equal_steps_and_are_deterministic_per_seed(self) -> None:
        found = outlook(asked())
        assert found.reason is None
        (bands,) = found.bands.values()
        assert [band.at_us - AT_US for band in bands] == [QUARTER_US * n for n in range(1, 9)]
        assert all(band.p10_micro <= band.p50_micro <= band.p90_micro for band in bands)
        assert found == outlook(asked())
        assert any(outlook(asked(), seed=seed) != found for seed in range(2, 7))

    def test_price_falls_as_jobs_end(self) -> None:
        """No job needs more than 20 minutes, so at the end all GPUs are free and the price is 0."""
        (bands,) = outlook(asked()).bands.values()
        assert bands[-1].p90_micro == 0
        assert bands[0].p90_micro == CREDIT_MICRO

    def test_include_surcharge(self) -> None:
        with_queue = replace(asked(), surcharges=(Surcharge("v100", 50, 3000),))
        (bands,) = outlook(with_queue).bands.values()
        assert bands[0].p90_micro > CREDIT_MICRO

    def test_end_at_first_stopped_run(self) -> None:
        whole = outlook(asked())
        cut = outlook(asked(), stop_after=40)
        assert cut.reason is NoPriceBand.TOO_MUCH_WORK or (
            0 < len(cut.bands["v100"]) < len(whole.bands["v100"])
        )
        assert outlook(asked(), stop_after=0).reason is NoPriceBand.TOO_MUCH_WORK

    @pytest.mark.parametrize("ended", [0, 3])
    def test_are_empty_with_too_few_ended_jobs(self, ended: int) -> None:
        found = outlook(asked(), ended=ended)
        assert (found.bands, found.reason) == ({}, NoPriceBand.TOO_LITTLE_KNOWN)

    def test_empty_pool_has_no_bands_with_too_few_ended_jobs(self) -> None:
        """The pool is empty, and the durations of future jobs are unknown."""
        empty = replace(asked(), jobs=(), leases=())
        assert outlook(empty, ended=3).reason is NoPriceBand.TOO_LITTLE_KNOWN
        assert outlook(empty).bands["v100"][-1].p90_micro == 0
