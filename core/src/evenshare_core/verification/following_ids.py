"""Who is who in two rounds that follow each other.

Rounds of one day name tenants, jobs and leases alike. Across days, the sums tell: both rounds
have rows of the same ids in the same order. In the database ids are the same in all rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot


class KindNames(Protocol):
    """The names of the numbers of each kind, that of number 1 first."""

    @property
    def tenants(self) -> Sequence[str]: ...

    @property
    def jobs(self) -> Sequence[str]: ...

    @property
    def leases(self) -> Sequence[str]: ...

    @property
    def profiles(self) -> Sequence[str]:
        """Of job types."""


class FollowedRound(Protocol):
    """A round as it is disclosed (`evenshare_core.disclosure.bundle.Disclosed`), or stored."""

    @property
    def day(self) -> str:
        """The UTC day of pool time whose names it has; "" where ids are the database's."""

    @property
    def names(self) -> KindNames | None:
        """The names of its numbers; None where ids are the database's, the same in all rounds."""

    @property
    def snapshot(self) -> Snapshot:
        """What was decided on."""

    @property
    def decision(self) -> Decision:
        """What was decided."""

    @property
    def superseded(self) -> Sequence[Mapping[str, Any]]:
        """What of it could not be applied any more."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """What an id of the round before is in the round after.

    `exact`: ids are the same in both, as in the database. `by_name`: they are known by their names,
    leases and profiles too.
    """

    exact: bool = False
    by_name: bool = True
    tenants: dict[int, int] = field(default_factory=dict)
    jobs: dict[int, int] = field(default_factory=dict)
    leases: dict[int, int] = field(default_factory=dict)
    profiles: dict[int, int] = field(default_factory=dict)

    def tenant(self, id_: int) -> int:
        """A tenant's id in the round after; negative where it has none there."""
        return id_ if self.exact else self.tenants.get(id_, -id_)

    def job(self, id_: int) -> int:
        """A job's id in the round after; negative where it has none there."""
        return id_ if self.exact else self.jobs.get(id_, -id_)

    def lease(self, id_: int) -> int:
        """A lease's id in the round after; negative where it has none there."""
        return id_ if self.exact else self.leases.get(id_, -id_)


def pairing_of(before: FollowedRound, after: FollowedRound) -> Pairing | None:
    """Return who is who; None where neither names nor sums tell."""
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
    """Pair ids as they occur first, in the order of rows."""
    return dict(zip(dict.fromkeys(before), dict.fromkeys(after), strict=False))


class RoundText:
    """How sentences name the round before, and what is in both rounds."""

    def __init__(self, before: FollowedRound, after: FollowedRound) -> None:
        self.before = f"round {before.snapshot.number}"
        self._before, self._after = before.names, after.names

    def tenant(self, id_: int) -> str:
        """Name a tenant of the round after; a negative id is one of the round before."""
        names = self._after if id_ >= 0 else self._before
        return f"tenant {_name(None if names is None else names.tenants, abs(id_))}"

    def job(self, id_: int) -> str:
        """Name a job, likewise."""
        names = self._after if id_ >= 0 else self._before
        return f"job {_name(None if names is None else names.jobs, abs(id_))}"


def _name(names: Sequence[str] | None, id_: int) -> str:
    return str(id_) if names is None or not 1 <= id_ <= len(names) else names[id_ - 1]
