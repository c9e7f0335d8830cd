"""`evenshare job metrics`, `job files`, `job fetch`: what a job's program reports and writes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import quote

from evenshare.errors import ApiError, UsageError, refusal

from .api import Transport, part
from .jobs import find
from .terminal import Terminal, inert, when

HEADS = ["METRIC", "STEP", "LAST", "LOWEST", "HIGHEST", "POINTS"]
POINT_HEADS = ["METRIC", "STEP", "VALUE", "SECONDS"]
FILE_HEADS = ["BYTES", "CHANGED", "PATH"]
PAST_END, CHANGED = 416, 409


def metrics(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    address = f"/jobs/{part(find(client, options.id))}/metrics"
    answer = client.get(address, name=options.name)
    if screen.answered(answer):
        return 0
    curves = answer.get("metrics") or ()
    points = [(curve.get("name", ""), one) for curve in curves for one in curve.get("points") or ()]
    if not curves:
        screen.note("no metrics")
    elif options.points:
        screen.table(POINT_HEADS, [_point(*one) for one in points], "STEP VALUE SECONDS")
    else:
        screen.table(HEADS, [_curve(one) for one in curves], " ".join(HEADS[1:]))
    if answer.get("thinned"):
        screen.note("points between the first and the last are left out")
    if answer.get("refused"):
        screen.note(f"not used: {inert(answer['refused'])}")
    for link in answer.get("links") or ():
        screen.note(f"{inert(link.get('name', ''))}: {inert(link.get('url', ''))}")
    return 0


def _curve(curve: Mapping[str, Any]) -> list[str]:
    last = (curve.get("points") or [{}])[-1]
    values = (last.get("value"), curve.get("lowest"), curve.get("highest"))
    figures = [inert(last.get("step", "")), *map(_figure, values)]
    return [inert(curve.get("name", "")), *figures, inert(curve.get("reported", ""))]


def _point(name: str, point: Mapping[str, Any]) -> list[str]:
    elapsed = _figure(point.get("elapsed_s"))
    return [inert(name), inert(point.get("step", "")), _figure(point.get("value")), elapsed]


def _figure(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, (int, float)) else "-"


def files(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    answer = client.get(f"/jobs/{part(find(client, options.id))}/files")
    if screen.answered(answer):
        return 0
    rows = [
        [inert(row.get("bytes", "")), when(row.get("modified_at")), inert(row.get("path", ""))]
        for row in answer.get("files") or ()
    ]
    if rows:
        screen.table(FILE_HEADS, rows, "BYTES")
    else:
        kept = answer.get("kept")
        screen.note("no files" if kept else "the portal cannot read the files of this pool's jobs")
    if answer.get("cut"):
        screen.note("there may be more files")
    return 0


def fetch(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    name = PurePosixPath(options.path).name
    if name in ("", ".."):
        raise UsageError(f"{options.path!r} names no file")
    target = Path(options.to or name)
    if not options.to and target.exists():
        raise UsageError(f"{name} exists already; name the file to replace with --to")
    address = f"/jobs/{part(find(client, options.id))}/files/{quote(options.path)}"
    beside = target.with_name(f".{target.name}.part")
    try:
        with beside.open("wb") as file:
            size = _copy(client, address, file)
        beside.replace(target)
    except OSError as problem:
        raise UsageError(f"{target} cannot be written: {problem.strerror}") from None
    finally:
        beside.unlink(missing_ok=True)
    if not screen.answered({"path": options.path, "bytes": size, "file": str(target)}):
        screen.note(f"{inert(target)}: {size} bytes")
    return 0


def _copy(client: Transport, address: str, file: BinaryIO) -> int:
    """Write a file part by part; return its size. Raises ApiError if it changes meanwhile."""
    offset, version = 0, ""
    while True:
        try:
            window = client.window(address, offset)
        except ApiError as refused:
            if refused.status == PAST_END and not offset:
                return 0
            if refused.status != PAST_END:
                raise
            window = None
        if window is None or (version and window.version != version):
            raise refusal(CHANGED, {"title": "The file changed while it was read; try again."})
        file.write(window.data)
        version, offset = window.version, offset + len(window.data)
        if offset >= window.total:
            return offset
