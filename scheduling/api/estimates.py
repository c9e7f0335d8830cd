"""How long a job is expected to run, as the API shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduling.models import Job
from scheduling.selectors.jobs.estimates import read_estimates
from scheduling.selectors.jobs.stop_forecasts import read_stop_forecasts
from tenants.answers import plain


def estimates_json(jobs: Sequence[Job]) -> dict[int, dict[str, Any]]:
    """Return how long jobs are expected to run, and when their metrics are met, by job id.

    Of what is over nothing is expected.
    """
    active = [job for job in jobs if job.is_active]
    known, stops = read_estimates(active), read_stop_forecasts(active)
    return {
        job.pk: {
            "estimate": plain(known.get(job.pk)),
            "stop_estimate": plain(stops.get(job.pk)),
        }
        for job in jobs
    }
