"""The memory of UniSched about jobs with deadlines: their answers, and the ends of SLO leases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evenshare_core.domain.deadlines import DeadlineLimit, DeadlineState
from evenshare_core.domain.ids import ById, Fields, IdKind

MEMORY_IDS = Fields({"answers": ById(IdKind.JOB), "looked_at": None, "origin_us": None})


@dataclass(slots=True)
class KeptAnswer:
    """The last answer to a job, and its progress since then.

    `end_us`: the end that the answer states. `until_us`: the end of the job's current SLO lease.
    `lost_us`: the time lost on several nodes and in restarts until `seen_us`. `whole_us`, `most`,
    `capacity`: the job's estimate, its tenant's GPU limit (-1 if unlimited) and the GPUs of its
    type, at the time of the answer. `option`: counts of the job's cells by level, then 1 if it is
    on one node.
    """

    state: DeadlineState
    by_us: int = 0
    limit: DeadlineLimit | None = None
    end_us: int = 0
    until_us: int = 0
    lost_us: int = 0
    seen_us: int = 0
    whole_us: int = 0
    most: int = -1
    capacity: int = 0
    option: tuple[int, ...] = ()

    def row(self) -> list[Any]:
        """Return the JSON form. For a missed job, it contains only the state."""
        if self.state is DeadlineState.MISSED:
            return [self.state.value]
        limit = self.limit.value if self.limit else ""
        return [
            self.state.value, self.by_us, limit, self.end_us, self.until_us, self.lost_us,
            self.seen_us, self.whole_us, self.most, self.capacity, list(self.option),
        ]  # fmt: skip # rows of what belongs together

    @classmethod
    def of(cls, row: list[Any]) -> KeptAnswer:
        state, *rest = row
        if not rest:
            return cls(DeadlineState(state))
        by_us, name, *numbers, option = rest
        limit = DeadlineLimit(name) if name else None
        end_us, until_us, lost_us, seen_us, whole_us, most, capacity = numbers
        return cls(
            DeadlineState(state), by_us, limit, end_us, until_us, lost_us, seen_us, whole_us,
            most, capacity, tuple(option),
        )  # fmt: skip # rows of what belongs together


@dataclass(slots=True)
class UniSchedMemory:
    """Answers by job, and a hash of the inputs of the last solved round.

    `origin_us`: the time from which planned leases start at multiples of a lease length.
    """

    answers: dict[int, KeptAnswer] = field(default_factory=dict)
    looked_at: str = ""
    origin_us: int | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> UniSchedMemory:
        """Read a result of `data` that was stored as JSON."""
        rows = {int(job): KeptAnswer.of(row) for job, row in data.get("answers", {}).items()}
        return cls(rows, data.get("looked_at", ""), data.get("origin_us"))

    def keep_phase(self, at_us: int) -> None:
        """Keep `origin_us` while any job is planned.

        If no job is, set it to the time of this round.
        """
        if not any(row.state is DeadlineState.PLANNED for row in self.answers.values()):
            self.origin_us = at_us

    def data(self, jobs: Iterable[int]) -> dict[str, Any]:
        """Return the memory to store. `jobs`: the jobs with deadlines that still exist."""
        if not self.answers:
            self.origin_us = None
        kept = sorted(self.answers.keys() & set(jobs))
        return {
            "answers": {str(job): self.answers[job].row() for job in kept},
            "looked_at": self.looked_at,
            "origin_us": self.origin_us,
        }
