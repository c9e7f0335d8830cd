"""Promises that change during a round, and the GPUs that a node offers to a new one.

These are parts of the reference (`tests.simulation.promise_reference`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from evenshare_core.domain.cluster import Placement
from tests.simulation.promise_round import Promise

# The first two are those that an adversary once found in a prototype.
FAULTS = {
    "rest_at_due": "a pinned lease's other GPUs count at T of the promise that pins it",
    "inherited_twice": "two promises behind a dropped one inherit the same GPUs",
    "renewed_whole": "a pinned lease is renewed for a whole term",
    "lent_whole": "a job on held GPUs gets a whole term",
    "head_first": "the job with the least GPU-time is the candidate, not the longest waiting one",
    "pinned_twice": "a lease's GPUs may be pinned by several promises",
    "held_shown": "held GPUs are not hidden from other jobs",
    "over_quota": "a tenant's promises may exceed its quota",
}


@dataclass
class DraftPart:
    """A part of a promise, as in `promise_round.Part`, that changes during a round."""

    gpus: int
    held: int = 0
    pins: Counter[int] = field(default_factory=Counter)
    after: Counter[int] = field(default_factory=Counter)

    def take(self, gpus: int, source: Counter[int], target: Counter[int]) -> int:
        """Move at most `gpus` between two counters, in order of ids; return the rest."""
        for key in sorted(source):
            moved = min(gpus, source[key])
            source[key] -= moved
            target[key] += moved
            gpus -= moved
        return gpus


@dataclass
class Draft:
    """A promise that changes during a round."""

    job: int
    gpus: int
    due_us: int
    made_us: int
    parts: dict[int, DraftPart]

    @classmethod
    def of(cls, row: Promise) -> Draft:
        """Return a stored promise."""
        parts = {
            one.node: DraftPart(one.gpus, one.held, Counter(one.pins), Counter(one.after))
            for one in row.parts
        }
        return cls(row.job, row.gpus, row.due_us, row.made_us, parts)

    @property
    def rank(self) -> tuple[int, int, int]:
        return (self.due_us, self.made_us, self.job)

    @property
    def has_after(self) -> bool:
        return any(+part.after for part in self.parts.values())

    @property
    def placement(self) -> Placement:
        return tuple((node, part.gpus) for node, part in sorted(self.parts.items()))

    def row(self, gpu_type: str) -> list[object]:
        """Return the promise as stored."""
        parts = [
            [
                node, part.gpus, part.held,
                [[key, gpus] for key, gpus in sorted((+part.pins).items())],
                [[key, gpus] for key, gpus in sorted((+part.after).items())],
            ]
            for node, part in sorted(self.parts.items())
        ]  # fmt: skip # rows of what belongs together
        return [self.job, gpu_type, self.gpus, self.due_us, self.made_us, parts]


def drop(gone: Draft, drafts: list[Draft], *, twice: bool = False) -> None:
    """Remove a promise, and give its parts to the promises behind it, earliest T first.

    With the fault `twice`, each of these inherits the same GPUs.
    """
    drafts.remove(gone)
    for node, part in gone.parts.items():
        for draft in sorted(drafts, key=lambda one: one.rank):
            heir = draft.parts.get(node)
            if heir is None or gone.job not in heir.after:
                continue
            source = part
            if twice:
                source = DraftPart(part.gpus, part.held, Counter(part.pins), Counter(part.after))
            gpus = heir.after.pop(gone.job)
            held = min(gpus, source.held)
            heir.held += held
            source.held -= held
            gpus = heir.take(gpus - held, source.pins, heir.pins)
            heir.take(gpus, source.after, heir.after)


class Source(NamedTuple):
    """GPUs of a node that are free at an instant: now, after a lease, or after a promised job."""

    at_us: int
    gpus: int
    lease: int = 0
    job: int = 0


class Offer(NamedTuple):
    """The GPUs that a node gives to a promise, at the latest at `due_us`."""

    due_us: int
    in_vain: int
    node: int
    sources: tuple[Source, ...]


def offer_of(node: int, gpus: int, sources: Iterable[Source], at_us: int) -> Offer | None:
    """Return the earliest offer of a node, or None if it is too small.

    GPUs that become free last are taken first, so that the fewest are held without use.
    """
    ordered = sorted(sources)
    left, due_us = gpus, at_us
    for source in ordered:
        if left <= 0:
            break
        left, due_us = left - source.gpus, max(due_us, source.at_us)
    if left > 0:
        return None
    chosen, in_vain, left = [], 0, gpus
    for source in reversed([one for one in ordered if one.at_us <= due_us]):
        used = min(left, source.gpus)
        if used:
            chosen.append(source._replace(gpus=used))
            in_vain += used * (due_us - max(at_us, source.at_us))
            left -= used
    return Offer(due_us, in_vain, node, tuple(chosen))


def part_of(offer: Offer) -> DraftPart:
    part = DraftPart(sum(source.gpus for source in offer.sources))
    for source in offer.sources:
        if source.job:
            part.after[source.job] += source.gpus
        elif source.lease:
            part.pins[source.lease] += source.gpus
        else:
            part.held += source.gpus
    return part
