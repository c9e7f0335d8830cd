"""Elements of a part of the report: claims with verdicts, tables, charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from evenshare_research.reproduce.runs import KeptRun, Value

Results = Mapping[KeptRun, Value]


class ClaimVerdict(Enum):
    REPRODUCED = "reproduced"
    IN_DIRECTION = "in direction"
    MORE = "more than claimed"
    NOT_REPRODUCED = "not reproduced"
    NOT_TESTABLE = "not testable here"


def verdict_of(reproduced: bool, *, in_direction: bool = False) -> ClaimVerdict:
    """Return the verdict. `in_direction` is used only if the claim is not reproduced."""
    if reproduced:
        return ClaimVerdict.REPRODUCED
    return ClaimVerdict.IN_DIRECTION if in_direction else ClaimVerdict.NOT_REPRODUCED


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a paper. `paper` and `ours` are the figures with units."""

    place: str  # section of the paper, for example "6.3"
    text: str
    paper: str
    ours: str
    verdict: ClaimVerdict
    why: str = ""

    @classmethod
    def of(
        cls, place: str, text: str, paper: str, ours: str, *, held: bool, why_not: str = ""
    ) -> Claim:
        """Return a claim that is reproduced if `held`, else not reproduced."""
        return cls(place, text, paper, ours, verdict_of(held), "" if held else why_not)


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table: rows of formatted cells, of which the first is the name of the row."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class ReportChart:
    """A chart: Plotly traces with a title."""

    title: str
    x: str
    y: str
    traces: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of a part: claims with verdicts, tables, charts and notes."""

    claims: Sequence[Claim] = ()
    tables: Sequence[ReportTable] = ()
    charts: Sequence[ReportChart] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the report that can run separately.

    `judge` turns the results of `runs` into findings. `ran` describes the traces, nodes and seeds.
    `document` is the document of a part without a source.
    """

    name: str
    title: str
    source: str  # citation of the paper
    ran: str
    runs: Sequence[KeptRun]
    judge: Callable[[Results], Findings]
    is_long: bool = False  # run only when requested by name
    document: str = "policies.md"
    about_s: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "about_s", sum(run.about_s for run in set(self.runs)))
