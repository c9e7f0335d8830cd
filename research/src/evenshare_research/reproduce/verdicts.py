"""Verdicts on claims, computed from figures and their noise.

The noise of a figure is a band: the central 95 % of its values in resamples. Resamples are drawn
with replacement from the seeds, if there are several. Otherwise they are drawn from the jobs and
hours of a single run (`evenshare_research.reproduce.resamples`).
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from evenshare_research.reproduce.model import ClaimVerdict

RESAMPLES, SEED = 1000, 1
OUTSIDE = 2.5  # percent of the resamples on each side of the band
# A gain is reproduced if it is between these parts of the paper's.
NEAR = (0.75, 1.25)
LEAST_GAIN = 0.01  # a smaller gain is none


class NoisyFigure(NamedTuple):
    """A figure with its noise: it lies between `low` and `high` in 95 % of the resamples."""

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> "NoisyFigure":
        return cls(value, value, value)

    @classmethod
    def of_seeds(cls, values: Sequence[float]) -> "NoisyFigure":
        """Return the mean of a figure over seeds."""
        drawn = np.random.default_rng(SEED).integers(len(values), size=(RESAMPLES, len(values)))
        return cls.of_resamples(fmean(values), np.asarray(values)[drawn].mean(axis=1).tolist())

    @classmethod
    def of_ratio(cls, pairs: Sequence[tuple[float, float]]) -> "NoisyFigure":
        """Return the relative gain of the first values' sum over the second values' sum."""
        rows = np.asarray(pairs)
        drawn = np.random.default_rng(SEED).integers(len(rows), size=(RESAMPLES, len(rows)))
        sums, whole = rows[drawn].sum(axis=1), rows.sum(axis=0)
        return cls.of_resamples(
            float(whole[0] / whole[1] - 1), (sums[:, 0] / sums[:, 1] - 1).tolist()
        )

    @classmethod
    def of_resamples(cls, value: float, resampled: Sequence[float]) -> "NoisyFigure":
        low, high = np.percentile(resampled, [OUTSIDE, 100 - OUTSIDE])
        return cls(value, float(low), float(high))

    @property
    def negative(self) -> "NoisyFigure":
        """For figures of which lower is better."""
        return NoisyFigure(-self.value, -self.high, -self.low)

    def shown(self) -> str:
        """Format 0.173, from 0.152 to 0.19, as "+17.3 % (15.2 to 19.0)"."""
        value, low, high = (100 * one for one in self)
        return f"{value:+.1f} % ({low:.1f} to {high:.1f})"


def between(
    got: NoisyFigure, least: float, most: float, *, none: float = 0.0, nothing: float = LEAST_GAIN
) -> ClaimVerdict:
    """Return the verdict on a figure of which the paper has values from `least` to `most`.

    Larger is better. `none`: the figure without any gain. The claim fails if the figure does not
    exceed `nothing` by more than the noise. It is reproduced if the paper's values meet the noise
    band, or if the gain is between the parts `NEAR` of theirs.
    """
    if got.low <= nothing:
        return ClaimVerdict.NOT_REPRODUCED
    parts = [none + part * (paper - none) for part in NEAR for paper in (least, most)]
    if min(parts) <= got.value <= max(parts) or (got.low <= most and got.high >= least):
        return ClaimVerdict.REPRODUCED
    return ClaimVerdict.MORE if got.value > most else ClaimVerdict.IN_DIRECTION


def gain_verdict(got: NoisyFigure, paper: float) -> ClaimVerdict:
    """Return the verdict on a relative gain, for example 0.2 for 20 %."""
    return between(got, paper, paper)


def within(got: NoisyFigure, least: float, most: float) -> ClaimVerdict:
    """Return whether a figure lies between two bounds within its noise. Larger is better."""
    if got.high < least:
        return ClaimVerdict.NOT_REPRODUCED
    return ClaimVerdict.MORE if got.low > most else ClaimVerdict.REPRODUCED


def why_not(verdict: ClaimVerdict, got: NoisyFigure, paper: str) -> str:
    """Return the reason of the verdict on a gain; empty if it is reproduced."""
    small = "below 1 %, which counts as none" if got.low > 0 else "no more than the noise"
    return {
        ClaimVerdict.IN_DIRECTION: f"less than three quarters of {paper}",
        ClaimVerdict.MORE: f"more than five quarters of {paper}",
        ClaimVerdict.NOT_REPRODUCED: small if got.value > 0 else "no gain",
    }.get(verdict, "")


class Ranking(NamedTuple):
    """Rivals by their figure relative to ours. `ahead` and `behind`: by more than the noise."""

    ahead: tuple[str, ...]
    within: tuple[str, ...]
    behind: tuple[str, ...]

    @property
    def verdict(self) -> ClaimVerdict:
        """Return whether ours is the lowest: in direction if the noise could change the order."""
        if self.ahead:
            return ClaimVerdict.NOT_REPRODUCED
        return ClaimVerdict.IN_DIRECTION if self.within else ClaimVerdict.REPRODUCED

    @property
    def why(self) -> str:
        """Return which rivals ours is not below; empty if it is below all of them."""
        said = (("not below", self.ahead), ("within the noise of", self.within))
        return "; ".join(f"{text} {', '.join(names)}" for text, names in said if names)


def ranked(rivals: Mapping[str, NoisyFigure]) -> Ranking:
    """Return the ranking. `rivals`: a rival's figure minus ours; lower figures are better."""
    return Ranking(
        tuple(name for name, got in rivals.items() if got.high < 0),
        tuple(name for name, got in rivals.items() if got.low <= 0 <= got.high),
        tuple(name for name, got in rivals.items() if got.low > 0),
    )


def difference(theirs: Mapping[str, Any], ours: Mapping[str, Any], field: str) -> NoisyFigure:
    """Return one run's figure minus another run's, with the noise of the difference.

    Both runs have the same jobs, and so the same resamples.
    """
    pairs = zip(theirs["resampled"][field], ours["resampled"][field], strict=True)
    return NoisyFigure.of_resamples(
        theirs[field] - ours[field], [their - our for their, our in pairs]
    )


def relative(theirs: Mapping[str, Any], ours: Mapping[str, Any], field: str) -> NoisyFigure:
    """Return one run's figure divided by another run's, minus 1, with the noise."""
    pairs = zip(theirs["resampled"][field], ours["resampled"][field], strict=True)
    return NoisyFigure.of_resamples(
        theirs[field] / ours[field] - 1, [their / our - 1 for their, our in pairs]
    )
