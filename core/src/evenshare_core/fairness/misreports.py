"""The shares of a job type in a round if it had reported other speeds.

The policy decides the stored round again, with one profile changed. The resulting shares are valued
by the true speeds. The only assumption about the policy is that it fills `ideals`.

The search scales each GPU type that is faster than the job type's slowest, and all of them
together. Only types of the pool on which it runs count. Factors are up to 4 and their inverses, but
no speed goes below the slowest. The speed on the pool's slowest type is kept, because all others
are relative to it. The result is the best misreport found; other misreports may gain more.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from evenshare_core.domain.decision import Ideal
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.measure import Measured
from evenshare_core.fairness.properties import Probe, misreport

Speeds = dict[str, int]  # GPU type: speed in thousandths
# Returns the policy's shares before rounding, for a snapshot that names the policy.
IdealsOf = Callable[[Snapshot], Iterable[Ideal]]
# Factors that overstate a speed; their inverses understate it.
FACTORS = (1.25, 1.5, 2.0, 3.0, 4.0)
ALL_TYPES = ""


class Misreport(NamedTuple):
    """Changed speeds of a job type: of one GPU type, or of all but the slowest (`ALL_TYPES`)."""

    gpu_type: str
    factor: float
    speeds: tuple[tuple[str, int], ...]


class MisreportResult(NamedTuple):
    """Shares of one job type before rounding, by GPU type, and its true throughput with them."""

    shares: dict[str, float]
    throughput: float


def profile_of(snapshot: Snapshot, profile: int) -> Profile:
    """Return a profile of the snapshot.

    Raises:
        ValueError: the snapshot has no profile of this id.
    """
    for row in snapshot.profiles:
        if row.id == profile:
            return row
    raise ValueError(f"profile {profile} is not in the snapshot")


def misreports_of(
    profile: Profile, gpu_types: Sequence[str]
) -> tuple[tuple[Misreport, ...], tuple[Misreport, ...]]:
    """Return the misreports of a profile to try: overstating, understating.

    `gpu_types` are those of the pool, slowest first. All reports differ from each other and from
    the truth. They are ordered by factor; for each factor all types come first, then the single
    types. Empty for a profile with the same speed everywhere.
    """
    speeds = dict(profile.speedups)
    known = [name for name in gpu_types if speeds.get(name)]
    others = [index for index, name in enumerate(known) if name != gpu_types[0]]
    over = _distinct(speeds, known, others, FACTORS)
    under = _distinct(speeds, known, others, [1 / factor for factor in FACTORS])
    return over, under


def _distinct(
    truth: Speeds, known: Sequence[str], others: Sequence[int], factors: Iterable[float]
) -> tuple[Misreport, ...]:
    """Return the distinct misreports that scale the `known` types at the indexes `others`."""
    reports: dict[tuple[tuple[str, int], ...], Misreport] = {}
    scaled = [(ALL_TYPES, others), *((known[index], [index]) for index in others)]
    row = np.array([truth[name] for name in known], float)
    for factor in factors:
        for name, types in scaled:
            reported = map(round, misreport(row, factor, types).tolist())
            speeds = truth | dict(zip(known, reported, strict=True))
            if speeds != truth:
                report = tuple(sorted(speeds.items()))
                reports.setdefault(report, Misreport(name, factor, report))
    return tuple(reports.values())


def misreported_snapshot(snapshot: Snapshot, profile: int, speeds: Mapping[str, int]) -> Snapshot:
    """Return the snapshot with other speeds in one profile.

    The policy's memory is dropped: it may contain the shares of the true speeds.

    Raises:
        ValueError: the snapshot has no such profile.
    """
    reported = msgspec.structs.replace(
        profile_of(snapshot, profile), speedups=tuple(sorted(speeds.items()))
    )
    profiles = tuple(reported if row.id == profile else row for row in snapshot.profiles)
    return msgspec.structs.replace(snapshot, profiles=profiles, memory={})


def honest_result(measured: Measured, place: int) -> MisreportResult:
    """Return the result of a row in the round itself."""
    allocation = measured.judged
    shares = dict(zip(allocation.gpu_types, map(float, allocation.shares[place]), strict=True))
    return MisreportResult(shares, float(allocation.speedups[place] @ allocation.shares[place]))


def misreport_result(
    measured: Measured, place: int, speeds: Mapping[str, int], ideals_of: IdealsOf
) -> MisreportResult:
    """Return the result of a row with these reported speeds, valued by the true ones.

    Raises:
        ValueError: the row has no profile. Errors of the policy are passed on.
    """
    truth = measured.judged
    tenant, profile = truth.rows[place]
    got = dict.fromkeys(truth.gpu_types, 0.0)
    for ideal in ideals_of(misreported_snapshot(measured.snapshot, profile, speeds)):
        if (ideal.tenant, ideal.profile) == (tenant, profile) and ideal.gpu_type in got:
            got[ideal.gpu_type] += ideal.gpus
    shares = np.array([got[name] for name in truth.gpu_types])
    return MisreportResult(got, float(truth.speedups[place] @ shares))


def probe_row(
    measured: Measured, place: int, misreports: Iterable[Misreport], ideals_of: IdealsOf
) -> list[Probe]:
    """Try misreports of one row.

    Raises:
        ValueError: the row has no profile. Errors of the policy are passed on.
    """
    honest = honest_result(measured, place).throughput
    return [
        Probe(
            place,
            one.factor,
            honest,
            misreport_result(measured, place, dict(one.speeds), ideals_of).throughput,
            one.gpu_type,
        )
        for one in misreports
    ]
