"""What UniSched remembers of jobs with deadlines: what was answered, and leases of several slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evenshare_core.domain.deadlines import DeadlineLimit, DeadlineState


@dataclass(slots=True)
class KeptAnswer:
    """What was answered last to one job, and what has become of it since.

    `end_us`: its planned end as it was answered. `until_us`: the end of the SLO lease that it is
    in. `lost_us`: time that its GPUs did not make, on several nodes and in restarts, as of
    `seen_us`. `whole_us`, `most`, `capacity`: its estimate, the GPUs that its tenant might have (-1:
    any number) and those of its type then. `option`: level counts of its cells and whether it stood
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
        ]  # fmt: skip

    @classmethod
    def of(cls, row: list[Any]) -> KeptAnswer:
        """Read `row` back."""
        state, *rest = row
        if not rest:
            return cls(DeadlineState(state))
        by_us, limit, *numbers, option = rest
        limit = DeadlineLimit(limit) if limit else None
        return cls(DeadlineState(state), by_us, limit, *numbers, tuple(option))


@dataclass(slots=True)
class UniSchedMemory:
    """Answers by job, and what the last solved round looked at."""

    answers: dict[int, KeptAnswer] = field(default_factory=dict)
    looked_at: str = ""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> UniSchedMemory:
        """Read what `data` gave, through JSON."""
        rows = {int(job): KeptAnswer.of(row) for job, row in data.get("answers", {}).items()}
        return cls(rows, data.get("looked_at", ""))

    def data(self, jobs: Iterable[int]) -> dict[str, Any]:
        """What is kept of these jobs, those that have deadlines."""
        kept = sorted(self.answers.keys() & set(jobs))
        return {
            "answers": {str(job): self.answers[job].row() for job in kept},
            "looked_at": self.looked_at,
        }
