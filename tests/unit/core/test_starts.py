"""Test predicted starts of queued jobs: samples, quantiles, and unknown starts."""

from __future__ import annotations

from random import Random
from statistics import median

import pytest
from msgspec.structs import replace

from evenshare_core.domain.backoff import Backoff
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import PoolPrice, Snapshot
from evenshare_core.domain.utilities import Utility, UtilityKind
from evenshare_core.simulation.present import Start, Work
from evenshare_core.simulation.start_correction import Correction, Factors
from evenshare_core.simulation.starts import (
    Durations,
    EndedJob,
    EstimatedStart,
    Forecast,
    Futures,
    History,
    NoEstimate,
    Survival,
    estimate_starts,
)
from evenshare_core.units import HOUR_US, MINUTE_US, SECOND_US
from tests.unit.core.snapshots import AT_US, job, lease, snapshot

ROUND_US = 30 * SECOND_US


def draws(seed: int = 1) -> Random:
    return Random(seed)  # noqa: S311 - draws of a test


def ended(work_us: int, count: int = 20, *, tenant: int = 1, **rest: int) -> list[EndedJob]:
    return [EndedJob(tenant, work_us, **rest) for _ in range(count)]


def busy(*jobs: Job, nodes: int = 1) -> Snapshot:
    """Return a FIFO round with nodes of one GPU, held by the first jobs, whose leases end now.

    A round is due every 30 s.
    """
    held = [lease(100 + one.id, one.id, (place, 1)) for place, one in enumerate(jobs[:nodes], 1)]
    return snapshot(
        jobs, held, nodes=dict.fromkeys(range(1, nodes + 1), 1), policy="fifo", round_us=ROUND_US
    )


def forecast(asked: Snapshot, past: list[EndedJob], **options: object) -> Forecast:
    given = {"until_us": AT_US + 24 * HOUR_US, "rng": draws(), **options}
    history = given.pop("history", None) or History(tuple(past))
    work = {one.id: Work(0) for one in asked.jobs}
    return estimate_starts(Start(asked, work), history, **given)  # type: ignore[arg-type]  # as given


class TestRemainingTime:
    def test_is_drawn_from_jobs_that_lasted_longer(self) -> None:
        chance = draws()
        of = Survival([10, 20, 30, 40, 50], [])
        drawn = {of.draw_left(25, chance, least=1) for _ in range(200)}
        assert drawn == {5, 15, 25}

    def test_counts_running_jobs_as_longer(self) -> None:
        """Of 11 jobs, 5 ended at 10, 1 at 100, and 5 have run for 90: most last longer than 10."""
        chance = draws()
        of = Survival([10] * 5 + [100], [90] * 5)
        lasted = [of.draw_left(0, chance, least=1) for _ in range(2000)]
        assert 0.4 < sum(one == 10 for one in lasted) / 2000 < 0.5
        assert {one for one in lasted if one < 100} == {10}

    def test_doubles_elapsed_time_in_median_beyond_all_jobs(self) -> None:
        chance = draws()
        of = Survival([10, 20], [])
        lasted = [of.draw_left(1000, chance, least=1) for _ in range(2000)]
        assert 900 < median(lasted) < 1100
        assert max(lasted) <= 19 * 1000 + 1

    def test_scales_estimate_by_past_estimate_errors(self) -> None:
        past = ended(2 * HOUR_US, estimate_us=HOUR_US)
        one = job(1, 1, estimate_us=10 * MINUTE_US)
        assert Durations(past, [], draws()).left_us(one, 0) == 20 * MINUTE_US
        assert Durations(past, [], draws()).left_us(one, 15 * MINUTE_US) == 5 * MINUTE_US
        assert Durations([], [], draws()).left_us(one, 4 * MINUTE_US) == 6 * MINUTE_US

    def test_uses_tenants_then_pools_jobs_without_estimate(self) -> None:
        past = [*ended(HOUR_US), *ended(2 * HOUR_US, 3, tenant=2)]
        durations = Durations(past, [], draws())
        assert durations.left_us(job(1, 1), 0) == HOUR_US
        drawn = {durations.left_us(job(1, 1, tenant=2), 0) for _ in range(100)}
        assert drawn == {HOUR_US, 2 * HOUR_US}


class TestForecast:
    def test_start_follows_end_of_earlier_jobs(self) -> None:
        """All jobs take an hour. The job on the GPU has just started."""
        made = forecast(busy(job(1, 1), job(2, 1), job(3, 1)), ended(HOUR_US))
        second, third = made.starts[2], made.starts[3]
        assert second.p50_us == second.p90_us
        assert HOUR_US <= (second.p50_us or 0) <= HOUR_US + 2 * ROUND_US
        assert 2 * HOUR_US <= (third.p50_us or 0) <= 2 * HOUR_US + 3 * ROUND_US
        assert made.until_us == AT_US + 24 * HOUR_US
        assert 1 not in made.starts, "it runs"

    def test_p50_and_p90_spread_with_uncertain_durations(self) -> None:
        past = [EndedJob(1, minutes * MINUTE_US) for minutes in range(10, 510, 10)]
        made = forecast(busy(job(1, 1), job(2, 1)), past)
        alone = [
            forecast(busy(job(1, 1), job(2, 1)), past, rng=draws(seed)).starts[2].p50_us or 0
            for seed in range(9)
        ]
        assert 100 * MINUTE_US < median(alone) < 400 * MINUTE_US
        one = made.starts[2]
        assert (one.p50_us or 0) < (one.p90_us or 0) <= 500 * MINUTE_US + 2 * ROUND_US

    def test_assumes_arrivals_at_past_rate(self) -> None:
        """Under SRTF, small jobs that arrive later go first."""
        asked = busy(job(1, 1, estimate_us=HOUR_US), job(2, 1, estimate_us=5 * HOUR_US))
        asked = replace(asked, policy="srtf")
        alone = forecast(asked, [])
        small = [job(10 + index, 1, estimate_us=6 * MINUTE_US) for index in range(100)]
        past = [
            replace(one, submitted_us=AT_US - index * 36 * SECOND_US)
            for index, one in enumerate(small)
        ]
        history = History((), tuple(past), HOUR_US)
        crowded = forecast(asked, [], history=history)
        assert (alone.starts[2].p50_us or 0) < 2 * HOUR_US
        assert crowded.arrivals == pytest.approx(2400, rel=0.05), "100 an hour for a day"
        later = crowded.starts[2]
        assert later.reason is NoEstimate.BEYOND or (later.p50_us or 0) > 4 * HOUR_US

    def test_draws_arrivals_with_past_utilities(self) -> None:
        """Without past utilities, all future jobs would bid the minimum."""
        past = [job(AT_US - one, 1, estimate_us=HOUR_US) for one in (1, 2)]
        bid = Utility(AT_US - 1, UtilityKind.BID, 900_000)
        history = History((), tuple(past), HOUR_US, utilities={bid.id: bid})
        futures = Futures(
            Start(busy(job(1, 1, estimate_us=HOUR_US)), {1: Work(0)}), history, draws()
        )
        coming = futures.draw(AT_US + 3 * HOUR_US).arrivals
        said = [row for row in coming if row.utility is not None]
        assert len(coming) == 2 * len(said) >= 4
        assert all(row.utility == replace(bid, id=row.id) for row in said)

    def test_is_deterministic_per_seed(self) -> None:
        past = [EndedJob(1, minutes * MINUTE_US) for minutes in range(10, 510, 10)]
        asked = busy(job(1, 1), job(2, 1), job(3, 1))
        assert forecast(asked, past) == forecast(asked, past)
        assert forecast(asked, past) != forecast(asked, past, rng=draws(2))

    def test_applies_correction_and_keeps_raw_quantiles(self) -> None:
        plain = forecast(busy(job(1, 1), job(2, 1)), ended(HOUR_US)).starts[2]
        factors = Factors(0.5, 2.0, 20)
        by = Correction(MINUTE_US, Factors(), factors)
        wide = forecast(busy(job(1, 1), job(2, 1)), ended(HOUR_US), correction=by).starts[2]
        assert (wide.raw_p50_us, wide.raw_p90_us) == (plain.p50_us, plain.p90_us)
        assert (wide.p50_us or 0) - AT_US == ((plain.p50_us or 0) - AT_US) // 2
        assert (wide.p90_us or 0) - AT_US == 2 * ((plain.p90_us or 0) - AT_US)


class TestNoEstimate:
    def test_reports_job_that_never_fits_or_backs_off(self) -> None:
        asked = busy(job(1, 1), job(2, 2), job(3, 1), job(4, 1))
        asked = replace(asked, schema=3, backoffs=(Backoff(3, AT_US + HOUR_US, 2),))
        starts = forecast(asked, ended(HOUR_US)).starts
        assert starts[2] == EstimatedStart(None, reason=NoEstimate.NEVER_FITS)
        assert starts[3] == EstimatedStart(None, reason=NoEstimate.BACKING_OFF)
        assert starts[4].reason is None

    def test_reports_unknown_durations(self) -> None:
        made = forecast(busy(job(1, 1), job(2, 1, estimate_us=HOUR_US)), ended(HOUR_US, 9))
        assert made.starts[2].reason is NoEstimate.TOO_LITTLE_KNOWN
        assert made.runs == 0

    def test_reports_start_beyond_horizon(self) -> None:
        asked = busy(job(1, 1), job(2, 1))
        made = forecast(asked, ended(HOUR_US), until_us=AT_US + MINUTE_US)
        assert made.starts[2].reason is NoEstimate.BEYOND

    @pytest.mark.parametrize("is_cut", [False, True])
    def test_reports_price_above_maximum(self, is_cut: bool) -> None:
        """Regression: the reason was the queue's length, but a shorter queue would not help."""
        asked = busy(job(1, 1), job(2, 1, max_price_micro=5), job(3, 1, max_price_micro=5))
        asked = replace(asked, prices=(PoolPrice("v100", 6, 1, 1, 6, 2000),))
        asked = replace(asked, entitlements=())
        made = forecast(asked, ended(48 * HOUR_US), stop=lambda _: is_cut)
        assert made.starts[2].reason is NoEstimate.PRICE_ABOVE_MAX
        asked = replace(asked, prices=(PoolPrice("v100", 5, 1, 1, 6, 2000),))
        made = forecast(asked, ended(48 * HOUR_US), stop=lambda _: is_cut)
        assert made.starts[2].reason in {NoEstimate.BEYOND, NoEstimate.TOO_MUCH_WORK}

    def test_reports_stopped_runs(self) -> None:
        made = forecast(busy(job(1, 1), job(2, 1)), ended(HOUR_US), stop=lambda _: True)
        assert made.starts[2].reason is NoEstimate.TOO_MUCH_WORK
        assert made.until_us < AT_US + HOUR_US

    def test_reports_runs_stopped_before_first_round(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In a large pool, the first simulated round can take longer than the time that is left."""
        draw = Futures.draw
        drawn: list[int] = []

        def count(futures: Futures, until_us: int) -> Start:
            drawn.append(until_us)
            return draw(futures, until_us)

        monkeypatch.setattr(Futures, "draw", count)
        made = forecast(busy(job(1, 1), job(2, 1)), ended(HOUR_US), stop=lambda run: run > 0)
        assert (len(drawn), made.runs, made.until_us) == (1, 19, AT_US)
        assert made.starts[2].reason is NoEstimate.TOO_MUCH_WORK

    def test_omits_only_p90_if_two_of_nineteen_runs_are_stopped(self) -> None:
        made = forecast(busy(job(1, 1), job(2, 1)), ended(HOUR_US), stop=lambda run: run >= 17)
        one = made.starts[2]
        assert (one.p50_us is None, one.p90_us, one.reason) == (False, None, None)
        made = forecast(busy(job(1, 1), job(2, 1)), ended(HOUR_US), stop=lambda run: run >= 18)
        assert made.starts[2].p90_us is not None
