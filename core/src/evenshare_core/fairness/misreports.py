"""What a round would have given a job type that had reported other speeds.

The policy itself answers the stored round again, with one profile changed; what it then gives is
valued by the speeds that are true. Nothing is assumed of the policy but that it fills `ideals`.

What is tried of a job type: of the GPU types of the pool on which it runs, each that is faster than
its slowest, and all of them, times a factor of up to 4 and its inverse; never below the slowest.
Its speed on the pool's slowest type stays, for all others count relative to it.
That is a search, and its answer the best that was found: other misreports may gain more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from evenshare_core.domain.decision import Ideal
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.measure import Measured
from evenshare_core.fairness.properties import Probe, misreport

Speeds = dict[str, int]  # GPU type -> thousandths
# What the policy that a snapshot names gives before rounding.
IdealsOf = Callable[[Snapshot], Iterable[Ideal]]
# Over, and the inverses under.
FACTORS = (1.25, 1.5, 2.0, 3.0, 4.0)
ALL_TYPES = ""


class Misreport(NamedTuple):
    """Other speeds of a job type: of one GPU type, or of all but the slowest (`ALL_TYPES`)."""

    gpu_type: str
    factor: float
    speeds: tuple[tuple[str, int], ...]


class MisreportResult(NamedTuple):
    """Shares before rounding of one job type, by GPU type, and its true throughput with them."""

    shares: dict[str, float]
    throughput: float


def profile_of(snapshot: Snapshot, profile: int) -> Profile:
    """Return a profile of the snapshot.

    Raises:
        ValueError: it has none of this id.
    """
    for row in snapshot.profiles:
        if row.id == profile:
            return row
    raise ValueError(f"profile {profile} is not in the snapshot")


def misreports_of(
    profile: Profile, gpu_types: Sequence[str]
) -> tuple[tuple[Misreport, ...], tuple[Misreport, ...]]:
    """Return what is tried of a profile: what overstates, and what understates.

    `gpu_types` of the pool, slowest first. Each is another report, none is the truth: by factor,
    and for each all types and then one by one. One that has the same speed everywhere has none.
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
    """Other reports of the types `known`, of which those at the indexes `others` are scaled."""
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
    """Return the snapshot in which one profile has other speeds.

    The policy's memory is dropped: it may hold the shares of the speeds that were true.

    Raises:
        ValueError: the snapshot has no such profile.
    """
    reported = msgspec.structs.replace(
        profile_of(snapshot, profile), speedups=tuple(sorted(speeds.items()))
    )
    profiles = tuple(reported if row.id == profile else row for row in snapshot.profiles)
    return msgspec.structs.replace(snapshot, profiles=profiles, memory={})


def honest_result(measured: Measured, place: int) -> MisreportResult:
    """Return what a row has in the round itself."""
    allocation = measured.judged
    shares = dict(zip(allocation.gpu_types, map(float, allocation.shares[place]), strict=True))
    return MisreportResult(shares, float(allocation.speedups[place] @ allocation.shares[place]))


def misreport_result(
    measured: Measured, place: int, speeds: Mapping[str, int], ideals_of: IdealsOf
) -> MisreportResult:
    """Return what a row would have, had its profile these speeds; valued by its true ones.

    Raises:
        ValueError: the row has no profile. What the policy raises passes through.
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
        ValueError: the row has no profile. What the policy raises passes through.
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
