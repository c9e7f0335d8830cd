"""Results of trace readers: jobs, bad lines and skipped lines, and sentences that count them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from evenshare_core.domain.plurals import plural
from evenshare_core.units import COUNT_MAX

# The number of jobs among which duplicates are found; it limits the memory for a file of any size.
REMEMBERED = COUNT_MAX


class HeaderError(Exception):
    """The start of the file does not determine its format; nothing was read."""


class Remark(Enum):
    """A remark on lines of a trace, with its sentences for one line and for several lines."""

    # Enum's own hash is a Python function, called for each line of a file.
    __hash__ = object.__hash__

    NO_GPU = ("line requests no GPU and is skipped", "lines request no GPU and are skipped")
    NEVER_RAN = (
        "line is of a job that never ran and is skipped",
        "lines are of jobs that never ran and are skipped",
    )
    NO_LENGTH = (
        "line has no run time and is skipped",
        "lines have no run time and are skipped",
    )
    PART = (
        "line is a part of a job, such as a step, and is skipped",
        "lines are parts of jobs, such as steps, and are skipped",
    )
    EARLIER_RUN = (
        "line is an earlier run of a requeued job and is skipped",
        "lines are earlier runs of requeued jobs and are skipped",
    )
    FRACTION = (
        "job requests a fraction of a GPU, which is rounded up",
        "jobs request a fraction of a GPU, which is rounded up",
    )
    FAILED = ("job failed, and fails here too", "jobs failed, and fail here too")
    CANCELLED = (
        "job was cancelled, and fails here after the time that it ran",
        "jobs were cancelled, and fail here after the time that they ran",
    )
    UNFINISHED = (
        "job had not ended, and fails here after the time that it had run",
        "jobs had not ended, and fail here after the time that they had run",
    )
    UNKNOWN_STATE = (
        "job has an unknown state and counts as a success",
        "jobs have unknown states and count as successes",
    )
    DOUBLED_ID = (
        "job has the id or name of an earlier one, and is kept",
        "jobs have the id or name of an earlier one, and are kept",
    )
    DOUBLED_LINE = (
        "line equals an earlier one, and is kept as another job",
        "lines equal an earlier one, and are kept as other jobs",
    )


@dataclass(frozen=True, slots=True)
class TraceLine:
    """A job of a trace. `submit_us` is on the file's own clock.

    `extra` has the optional fields of the file, by the names of
    `evenshare_core.simulation.trace_formats.OPTIONAL`. `deadline_s` (a list, after the submission),
    `cancel_s`, `cold_s` and `checkpoint_s` are in microseconds.
    """

    line: int
    name: str
    tenant: str
    gpus: int
    submit_us: int
    duration_us: int
    extra: dict[str, object] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is not a job, with the faulty field (empty: the whole line) and the reason."""

    line: int
    field: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A readable line that is skipped; `why` gives the reason."""

    line: int
    why: Remark = Remark.NO_GPU


Read = TraceLine | BadLine | LeftOut


@dataclass(frozen=True, slots=True)
class Columns:
    """The positions of the fields in a line; `format` is the name of the line's format."""

    format: str
    width: int
    at: dict[str, int]


class TraceTally:
    """Counts of remarks on lines, with the first line of each."""

    def __init__(self) -> None:
        self.counts: dict[Remark, int] = {}
        self._first: dict[Remark, int] = {}

    def add(self, read: Read) -> None:
        """Count the remarks on a line."""
        if isinstance(read, TraceLine):
            for remark in read.remarks:
                self._count(remark, read.line)
        elif isinstance(read, LeftOut):
            self._count(read.why, read.line)

    def _count(self, remark: Remark, line: int) -> None:
        self.counts[remark] = self.counts.get(remark, 0) + 1
        self._first.setdefault(remark, line)

    def sentences(self) -> tuple[str, ...]:
        """Return a sentence for each counted remark, in the order of `Remark`."""
        return tuple(
            f"{plural(count, *remark.value)} ({'' if count == 1 else 'first: '}line"
            f" {self._first[remark]})"
            for remark in Remark
            if (count := self.counts.get(remark, 0))
        )


class Doubles:
    """A detector of duplicate jobs, by name or by the whole line.

    It keeps 64-bit hashes instead of texts; chance collisions are negligible.
    """

    def __init__(self) -> None:
        self._lines: dict[int, int] = {}

    def marked(self, read: Read, text: str, *, is_named: bool = True) -> Read:
        """Return the result of line `text`, with a remark if its job is a duplicate.

        `is_named` is whether the file names its jobs; otherwise only whole lines are compared.
        """
        if not isinstance(read, TraceLine):
            return read
        key, line = hash(read.name if is_named else text), hash(text)
        before = self._lines.get(key)
        if before is None:
            if len(self._lines) < REMEMBERED:
                self._lines[key] = line
            return read
        double = Remark.DOUBLED_LINE if before == line else Remark.DOUBLED_ID
        return replace(read, remarks=(*read.remarks, double))


def tallied(reads: Iterable[Read], tally: TraceTally) -> Iterator[Read]:
    """Yield lines unchanged, and count their remarks."""
    for read in reads:
        tally.add(read)
        yield read
