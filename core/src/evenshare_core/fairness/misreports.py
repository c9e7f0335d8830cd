"""What a round would have given a job type that had reported other speeds.

The policy itself decides the stored round again, with one profile changed; what it then gives is
valued by the speeds that are true. Nothing is assumed of the policy but that it fills `ideals`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.measure import Measured
from evenshare_core.fairness.properties import Probe, misreport

Speeds = dict[str, int]  # GPU type -> thousandths
Decide = Callable[[Snapshot], Decision]  # a round, by the policy that the snapshot names


@dataclass(frozen=True, slots=True)
class MisreportResult:
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


def misreported_speeds(profile: Profile, factor: float) -> Speeds:
    """Return a profile's speeds with every type but its slowest times `factor`, see `misreport`."""
    reported = misreport(np.array([speed for _, speed in profile.speedups], float), factor)
    names = [name for name, _ in profile.speedups]
    return {name: round(speed) for name, speed in zip(names, reported, strict=True) if speed}


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
    measured: Measured, place: int, speeds: Mapping[str, int], decide: Decide
) -> MisreportResult:
    """Return what a row would have, had its profile these speeds; valued by its true ones.

    Raises:
        ValueError: the row has no profile. What the policy raises passes through.
    """
    truth = measured.judged
    key = truth.rows[place]
    reported = misreported_snapshot(measured.snapshot, key[1], speeds)
    answer = Measured(reported, decide(reported), frozenset()).judged
    # Other speeds may put the types into another order.
    got = dict.fromkeys(truth.gpu_types, 0.0)
    if key in answer.rows:
        got |= zip(answer.gpu_types, map(float, answer.shares[answer.rows.index(key)]), strict=True)
    shares = np.array([got[name] for name in truth.gpu_types])
    return MisreportResult(got, float(truth.speedups[place] @ shares))


def probe_row(
    measured: Measured, place: int, factors: Iterable[float], decide: Decide
) -> list[Probe]:
    """Try misreports of one row by named factors.

    Raises:
        ValueError: the row has no profile. What the policy raises passes through.
    """
    profile = profile_of(measured.snapshot, measured.judged.rows[place][1])
    honest = honest_result(measured, place).throughput
    return [
        Probe(
            place, factor, honest,
            misreport_result(
                measured, place, misreported_speeds(profile, factor), decide
            ).throughput,
        )
        for factor in factors
    ]  # fmt: skip
