"""Read traces for tests: their jobs, bad lines and messages."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.trace_reads import BadLine, Read, TraceLine, TraceTally, tallied

DATA = Path(__file__).resolve().parents[2] / "data"


class Trace:
    """The content of a trace file."""

    def __init__(
        self, content: bytes | str, *, form: str = "auto", mapping: Mapping[str, str] | None = None
    ) -> None:
        data = content.encode() if isinstance(content, str) else content
        tally = TraceTally()
        self.columns, lines = trace_lines(io.BytesIO(data), form=form, mapping=mapping)
        self.reads: list[Read] = list(tallied(lines, tally))
        self.jobs = [read for read in self.reads if isinstance(read, TraceLine)]
        self.bad = [read for read in self.reads if isinstance(read, BadLine)]
        self.sentences = list(tally.sentences())

    @classmethod
    def of(cls, name: str, mapping: Mapping[str, str] | None = None) -> Trace:
        """Read a file of tests/data."""
        return cls((DATA / name).read_bytes(), mapping=mapping)

    def summary(self) -> list[tuple[str, str, int, int, int, object]]:
        """Return (name, tenant, GPUs, submission in s, length in s, exit code) of each job."""
        first_us = min(job.submit_us for job in self.jobs)
        return [
            (
                job.name, job.tenant, job.gpus, (job.submit_us - first_us) // 10**6,
                job.duration_us // 10**6, job.extra.get("exit_code", 0),
            )
            for job in self.jobs
        ]  # fmt: skip
