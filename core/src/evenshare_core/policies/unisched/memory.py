"""What UniSched remembers of jobs with deadlines: answers, and leases of several slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evenshare_core.domain.deadlines import DeadlineLimit, DeadlineState
from evenshare_core.domain.ids import ById, Fields, IdKind

MEMORY_IDS = Fields({"answers": ById(IdKind.JOB), "looked_at": None, "origin_us": None})


@dataclass(slots=True)
class KeptAnswer:
    """What was answered last to one job, and what has become of it since.

    `end_us`: its planned end as it was answered. `until_us`: the end of the SLO lease that it is
    in. `lost_us`: time that its GPUs did not make, on several nodes and in restarts, as of
    `seen_us`. `whole_us`, `most`, `capacity`: its estimate, the GPUs that its tenant might have and
    those of its type then; -1: any number. `option`: level counts of its cells and whether it stood
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
        """Return it as JSON has it; of a job that missed, what it lost counts no more."""
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
    """Answers by job, and what the last solved round looked at.

    `origin_us`: when a lease of the plans that stand began; they all have its phase.
    """

    answers: dict[int, KeptAnswer] = field(default_factory=dict)
    looked_at: str = ""
    origin_us: int | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> UniSchedMemory:
        """Read what `data` gave, through JSON."""
        rows = {int(job): KeptAnswer.of(row) for job, row in data.get("answers", {}).items()}
        return cls(rows, data.get("looked_at", ""), data.get("origin_us"))

    def keep_phase(self, at_us: int) -> None:
        """Begin leases anew at a round in which no plan stands."""
        if not any(row.state is DeadlineState.PLANNED for row in self.answers.values()):
            self.origin_us = at_us

    def data(self, jobs: Iterable[int]) -> dict[str, Any]:
        """What is kept of these jobs, those that have deadlines."""
        if not self.answers:
            self.origin_us = None
        kept = sorted(self.answers.keys() & set(jobs))
        return {
            "answers": {str(job): self.answers[job].row() for job in kept},
            "looked_at": self.looked_at,
            "origin_us": self.origin_us,
        }
