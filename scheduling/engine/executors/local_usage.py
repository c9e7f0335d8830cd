"""Parses the usage samples of a lease's shims, which are untrusted: they are bounded and checked.

`scheduling.engine.executors.shim.usage` writes them, one file for each node. The job can write
there too, so only data in the right format is accepted: numbers within bounds, times in order.
"""

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from scheduling.engine.executors.local_files import USAGE_BYTES
from scheduling.engine.executors.shim.usage import rows_of_each
from scheduling.selectors import stored_texts as texts

VERSION = 1
# A shim keeps at most 240 rows, and merges neighbouring rows if there are more. In a large gang it
# keeps fewer.
MOST_ROWS = 256
MOST_GPUS = 32

# Upper bounds: ten years in milliseconds; the CPU time of 65,536 cores in ten years; an exbibyte;
# 16 TiB in MiB.
Elapsed = Annotated[int, Meta(ge=0, le=315_360_000_000)]
CpuTime = Annotated[int, Meta(ge=0, le=2**55)]
Bytes = Annotated[int, Meta(ge=0, le=2**60)]
Mebibytes = Annotated[int, Meta(ge=0, le=2**24)]
Permille = Annotated[int, Meta(ge=0, le=1000)]


class GpuState(StrEnum):
    """The state of GPU readings.

    `none`: the program has no GPU; `absent`: the node has no nvidia-smi; `asked`: no answer yet;
    `failed`: nvidia-smi is no longer queried.
    """

    OK = "ok"
    FAILED = "failed"
    ASKED = "asked"
    ABSENT = "absent"
    NONE = "none"


class SampledRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The usage since the previous row. Times and CPU time count from the program's start."""

    end_ms: Elapsed
    cpu_ms: CpuTime
    memory_bytes: Bytes | None
    memory_peak_bytes: Bytes | None
    busy: Annotated[tuple[Permille | None, ...], Meta(max_length=MOST_GPUS)]
    used_mib: Annotated[tuple[Mebibytes | None, ...], Meta(max_length=MOST_GPUS)]


class NodeUsage(msgspec.Struct, frozen=True):
    """The usage of a program on one node, on which it may use `cpus` CPUs and `gpus` GPUs."""

    version: int
    rank: int
    cpus: Annotated[int, Meta(ge=1, le=2**16)]
    gpus: Annotated[int, Meta(ge=0, le=MOST_GPUS)]
    gpu_state: GpuState
    gpu_mib: Mebibytes | None
    rows: Annotated[tuple[SampledRow, ...], Meta(max_length=MOST_ROWS)]


class UsageFile(NamedTuple):
    """A file's samples, or why they cannot be used; both are empty if there is no file."""

    usage: NodeUsage | None = None
    refused: str = ""


_decoder = msgspec.json.Decoder(NodeUsage)


def most_rows(ranks: int) -> int:
    """Return the maximum number of rows in a rank's file in a gang of `ranks`."""
    own = rows_of_each(ranks)
    return MOST_ROWS if own == rows_of_each(1) else own


def parse_usage(
    text: bytes, *, rank: int, rows: int = MOST_ROWS, gpus: int = MOST_GPUS
) -> UsageFile:
    """Return the samples of a rank's file, or a short reason to refuse them.

    `rows` and `gpus` are the maximum numbers of rows, and of GPUs in each row.
    """
    if not text:
        return UsageFile()
    if len(text) > USAGE_BYTES:
        return UsageFile(refused=texts.TOO_LONG.format(most=USAGE_BYTES))
    try:
        usage = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Not shown, because msgspec's message may quote parts of the input.
        return UsageFile(refused=texts.NOT_AS_DESCRIBED.format(document="docs/executors.md"))
    if usage.version != VERSION:
        return UsageFile(refused=texts.OTHER_VERSION.format(version=VERSION))
    if usage.rank != rank:
        return UsageFile(refused=texts.OTHER_RANK)
    why = _excess(usage.rows, rows, gpus) or _disorder(usage.rows)
    return UsageFile(refused=why) if why else UsageFile(usage)


def _excess(rows: Sequence[SampledRow], most: int, gpus: int) -> str:
    if len(rows) > most:
        return texts.TOO_MANY_ROWS.format(most=most)
    if any(len(row.busy) > gpus for row in rows):
        return texts.TOO_MANY_GPUS
    return ""


def _disorder(rows: Sequence[SampledRow]) -> str:
    if any(
        later.end_ms <= row.end_ms or later.cpu_ms < row.cpu_ms for row, later in pairwise(rows)
    ):
        return texts.NO_ORDER
    if any(len(row.busy) != len(row.used_mib) for row in rows):
        return texts.UNEVEN_ROWS
    if any((row.memory_bytes or 0) > (row.memory_peak_bytes or 0) for row in rows):
        return texts.HIGH_MEAN
    return ""
