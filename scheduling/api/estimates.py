"""How long a job is expected to run, as the API shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rest_framework import serializers as s

from evenshare_core.domain.estimates import EstimateSource
from scheduling.models import Job
from scheduling.selectors.job_estimates import EstimateView, read_estimates
from scheduling.selectors.stop_forecasts import StopView, read_stop_forecasts


class JobEstimateRow(s.Serializer[object]):
    """How long a job is expected to run in all, on the slowest GPU type that it accepts."""

    seconds = s.FloatField()
    error_percent = s.FloatField(
        help_text="Relative standard error; 100 where nobody knows how far off it may be."
    )
    # DRF takes declared fields off the class, so that its own `source` stays.
    source = s.ChoiceField([one.value for one in EstimateSource])  # type: ignore[assignment]  # see above
    basis = s.IntegerField(
        help_text="Of how many reports of measured iterations, or of how many earlier runs."
    )
    overhead_seconds = s.FloatField(help_text="What it loses when it is suspended and resumed.")


class StopEstimateRow(s.Serializer[object]):
    """After how many iterations a job is expected to stop by its metric: the median."""

    iterations = s.IntegerField()
    low = s.IntegerField(help_text="By then it has stopped with a chance of 10 %.")
    high = s.IntegerField(help_text="By then it has stopped with a chance of 90 %.")
    error_percent = s.FloatField(help_text="Relative standard error.")
    # DRF takes declared fields off the class, so that its own `source` stays.
    source = s.ChoiceField(  # type: ignore[assignment]  # see above
        ["measured", "fitted", "cap"],
        help_text="The target was met, fitted curves, or the most iterations.",
    )
    note = s.CharField(
        allow_blank=True, help_text="Why it is the cap; else empty, or that the target was met."
    )
    evaluations = s.IntegerField(help_text="Of how many evaluations.")
    iteration = s.IntegerField(help_text="After how many iterations the last one was.")


def estimates_json(jobs: Sequence[Job]) -> dict[int, dict[str, Any]]:
    """Return how long jobs are expected to run, and when their metrics are met, by job id.

    Of what is over nothing is expected.
    """
    active = [job for job in jobs if job.is_active]
    known, stops = read_estimates(active), read_stop_forecasts(active)
    return {
        job.pk: {
            "estimate": estimate_json(known.get(job.pk)),
            "stop_estimate": stop_json(stops.get(job.pk)),
        }
        for job in jobs
    }


def stop_json(stop: StopView | None) -> dict[str, Any] | None:
    """Return after how many iterations a job is expected to stop."""
    if stop is None:
        return None
    return {
        "iterations": stop.iterations,
        "low": stop.low,
        "high": stop.high,
        "error_percent": stop.error_milli / 10,
        "source": stop.source.value,
        "note": stop.note,
        "evaluations": stop.evaluations,
        "iteration": stop.iteration,
    }


def estimate_json(estimate: EstimateView | None) -> dict[str, Any] | None:
    """Return how long a job is expected to run in all, and how sure that is."""
    if estimate is None:
        return None
    return {
        "seconds": round(estimate.work_s, 3),
        "error_percent": estimate.error_milli / 10,
        "source": estimate.source.value,
        "basis": estimate.basis,
        "overhead_seconds": round(estimate.overhead_s, 3),
    }
