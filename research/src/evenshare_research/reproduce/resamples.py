"""Figures of a run in resamples of its jobs and hours: the noise of a single run.

Each job and each hour counts once per draw. The counts depend only on the job's or
hour's number, so they are the same under every policy. So the difference of two policies in a
resample has the noise of the difference, which is far below that of each figure.
"""

from collections.abc import Sequence

import numpy as np

from evenshare_core.simulation.figures import LOSS_BELOW, UNFAIR_BELOW, Figures

DRAWS, SEED = 200, 1


def resampled(figures: Figures) -> dict[str, list[float]]:
    """Return some figures of a run in each of `DRAWS` resamples, by name."""
    jobs = [(row.job.id, row.slowdown, row.jct_s) for row in figures.jobs]
    losses = [(row.job.id, row.rho < LOSS_BELOW) for row in figures.jobs if row.rho is not None]
    hours = [
        (row.period, (row.rho or 0) < UNFAIR_BELOW) for row in figures.tenant_hours if row.deserved
    ]
    short = [
        (row.period, row.short / row.deserved, row.deserved)
        for row in figures.tenant_hours
        if row.deserved
    ]
    ids = [job for job, _, _ in jobs]
    return {
        "sharing_loss_jobs": _means(*zip(*losses, strict=True)) if losses else [],
        "slowdown": _means(ids, [slowdown for _, slowdown, _ in jobs]),
        "jct_s": _means(ids, [jct_s for _, _, jct_s in jobs]),
        "tenant_unfair_intervals": _means(*zip(*hours, strict=True)) if hours else [],
        "tenant_deficit": _means(*zip(*short, strict=True)) if short else [],
    }


def _means(
    numbers: Sequence[int], values: Sequence[float], shares: Sequence[float] | None = None
) -> list[float]:
    """Return the mean of values in each resample, by default of equal weight.

    A value belongs to a job or an hour.
    """
    index, row = np.asarray(numbers), np.asarray(values, float)
    # A row per number, so that a run with fewer jobs has the same counts of the others.
    counts = np.random.default_rng(SEED).poisson(1.0, size=(int(index.max()) + 1, DRAWS))
    weights = counts[index].T
    if shares is not None:
        weights = weights * np.asarray(shares, float)
    means = (weights * row).sum(axis=1) / np.maximum(1, weights.sum(axis=1))
    return [round(float(mean), 6) for mean in means]
