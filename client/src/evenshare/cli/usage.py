"""`evenshare job usage`: a job's use of CPUs, memory and GPUs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from .api import Transport, part
from .job_fields import GPU_STATES
from .jobs import find
from .terminal import Terminal, inert, when

# The GPU type of slots that have only CPUs.
CPU = "cpu"
HEADS = ["LEASE", "FROM", "CORES", "MEMORY", "PEAK", "GPU", "LOWEST", "GPU-MEMORY"]
GIB, MIB = 2**30, 2**20


def usage(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    answer = client.get(f"/jobs/{part(find(client, options.id))}/usage")
    if screen.answered(answer):
        return 0
    leases = answer.get("leases") or ()
    sums = [row["usage"] for row in leases if isinstance(row.get("usage"), Mapping)]
    rows = [_cells(row) for row in (answer.get("points") or () if options.points else sums)]
    if rows:
        screen.table(HEADS, rows, " ".join(("LEASE", *HEADS[2:])))
    else:
        screen.note(
            "no samples yet" if answer.get("reported") else "jobs of this pool are not sampled"
        )
    for line in _gpu_notes(leases[-1] if leases else {}):
        screen.note(line)
    for row in leases:
        for line in row.get("refused") or ():
            screen.note(f"not used: {inert(line)}")
    if answer.get("gpus_idle_since"):
        screen.note(f"GPUs idle since {when(answer['gpus_idle_since'])}")
    if answer.get("earlier_leases"):
        screen.note("earlier leases are not shown")
    return 0


def _gpu_notes(newest: Mapping[str, Any]) -> Iterator[str]:
    """Yield the GPU figures of a lease that are unknown, with the reasons."""
    if newest.get("gpu_type") == CPU or not newest.get("nodes_reporting"):
        return
    if newest.get("gpu_state") in GPU_STATES:
        yield f"GPU use is not reported: {GPU_STATES[newest['gpu_state']]}"
    known, gpus = newest.get("gpus_reporting"), newest.get("gpus")
    if isinstance(known, int) and isinstance(gpus, int) and 0 < known < gpus:
        yield f"GPU figures cover {known} of its {gpus} GPUs"


def _cells(row: Mapping[str, Any]) -> list[str]:
    return [
        inert(row.get("lease", "")),
        when(row.get("starts_at")),
        _figure(row.get("cores"), 1, "", 2),
        _size(row.get("memory_bytes")),
        _size(row.get("memory_peak_bytes")),
        _figure(row.get("gpu_percent"), 1, " %", 0),
        _figure(row.get("gpu_lowest_percent"), 1, " %", 0),
        _size(row.get("gpu_memory_peak_bytes")),
    ]


def _size(value: Any) -> str:
    """Return bytes as the portal's pages show them: in GiB, or in MiB below 1 GiB."""
    if isinstance(value, int | float) and value < GIB:
        return _figure(value, MIB, " MiB", 0)
    return _figure(value, GIB, " GiB", 2)


def _figure(value: Any, unit: float, name: str, places: int) -> str:
    """Return a number in its unit, or a dash if unknown."""
    if not isinstance(value, int | float):
        return "-"
    return f"{value / unit:.{places}f}{name}"
