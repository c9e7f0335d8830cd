"""How long a job is expected to run, as the API shows it."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from evenshare_core.domain.estimates import EstimateSource
from scheduling.selectors.job_estimates import EstimateView


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
