"""Pairing of the ids of two consecutive rounds.

Rounds of one day use the same names for tenants, jobs and leases. If the day changes in between,
the sums give the pairing: both rounds have rows of the same ids in the same order. In the database,
ids are the same in all rounds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from evenshare_core.disclosure.bundle import Disclosed
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.verification.following_texts import JOB, ROUND, TENANT


@dataclass(frozen=True, slots=True)
class StoredRound:
    """A round as the engine stores it, with the database's ids."""

    snapshot: Snapshot
    decision: Decision
    superseded: Sequence[Mapping[str, Any]]
    day: str = ""
    names: None = None


FollowedRound: TypeAlias = "Disclosed | StoredRound"


@dataclass(frozen=True, slots=True)
class Pairing:
    """The ids of the previous round, mapped to those of the later round.

    `exact` if ids are the same in both, as in the database. `by_name` if ids are paired by their
    names, including leases and profiles.
    """

    exact: bool = False
    by_name: bool = True
    tenants: dict[int, int] = field(default_factory=dict)
    jobs: dict[int, int] = field(default_factory=dict)
    leases: dict[int, int] = field(default_factory=dict)
    profiles: dict[int, int] = field(default_factory=dict)

    def tenant(self, id_: int) -> int:
        """Return a tenant's id in the later round; negative if it has none there."""
        return id_ if self.exact else self.tenants.get(id_, -id_)

    def job(self, id_: int) -> int:
        """Return a job's id in the later round; negative if it has none there."""
        return id_ if self.exact else self.jobs.get(id_, -id_)

    def lease(self, id_: int) -> int:
        """Return a lease's id in the later round; negative if it has none there."""
        return id_ if self.exact else self.leases.get(id_, -id_)


def pairing_of(before: FollowedRound, after: FollowedRound) -> Pairing | None:
    """Return the pairing of ids; None if neither names nor sums give it."""
    if before.names is None and after.names is None:
        return Pairing(exact=True)
    if before.names is None or after.names is None:
        return None
    if before.day == after.day:
        return Pairing(
            tenants=_by_name(before.names.tenants, after.names.tenants),
            jobs=_by_name(before.names.jobs, after.names.jobs),
            leases=_by_name(before.names.leases, after.names.leases),
            profiles=_by_name(before.names.profiles, after.names.profiles),
        )
    left, taken = before.decision.service, after.snapshot.service
    if len(left.claims) != len(taken.claims) or len(left.jobs) != len(taken.jobs):
        return None
    tenants = _by_rank([row.tenant for row in left.claims], [row.tenant for row in taken.claims])
    jobs = _by_rank([row.job for row in left.jobs], [row.job for row in taken.jobs])
    return Pairing(by_name=False, tenants=tenants, jobs=jobs)


def _by_name(before: Sequence[str], after: Sequence[str]) -> dict[int, int]:
    numbers = {name: number for number, name in enumerate(after, 1)}
    return {number: numbers[name] for number, name in enumerate(before, 1) if name in numbers}


def _by_rank(before: Iterable[int], after: Iterable[int]) -> dict[int, int]:
    """Pair ids by the order in which they first occur in the rows."""
    return dict(zip(dict.fromkeys(before), dict.fromkeys(after), strict=False))


class RoundText:
    """Texts for messages: the previous round, and names of tenants and jobs of both rounds."""

    def __init__(self, before: FollowedRound, after: FollowedRound) -> None:
        self.before = ROUND.format(number=before.snapshot.number)
        self._before, self._after = before.names, after.names

    def tenant(self, id_: int) -> str:
        """Return a tenant's name in the later round, or in the previous round for a negative id."""
        names = self._after if id_ >= 0 else self._before
        return TENANT.format(name=_name(None if names is None else names.tenants, abs(id_)))

    def job(self, id_: int) -> str:
        """Return the name of a job, by the same rule as `tenant`."""
        names = self._after if id_ >= 0 else self._before
        return JOB.format(name=_name(None if names is None else names.jobs, abs(id_)))


def _name(names: Sequence[str] | None, id_: int) -> str:
    return str(id_) if names is None or not 1 <= id_ <= len(names) else names[id_ - 1]
