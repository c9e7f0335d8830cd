"""`evenshare round pin`: store, show or compare the head of a pool's log.

Imported only by `verify`, with evenshare-core.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from evenshare.errors import ApiError, UnreachableError, UsageError
from evenshare_core.verification.heads import (
    HeadFinding,
    Pin,
    Proof,
    compare_heads,
    read_pin,
    short_key,
    verify_head,
)
from evenshare_core.verification.verdict import EXIT_CODES, ProofProblem, ProofVerdict

from .api import Transport, part
from .pins import keep, pin_file, stored_pin
from .terminal import Terminal, inert
from .verify_files import Files, answers, fetch_chain


def pin(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    path = pin_file(os.environ, client.server.url, options.pool)
    options.file, known = path, pinned(path)
    if options.show:
        if known is None:
            raise UsageError(f"no head of {options.pool} is pinned; run evenshare round pin")
        _print(screen, options, known, (), [])
        return 0
    other = None if options.against is None else _given(Path(options.against))
    with tempfile.TemporaryDirectory(prefix="evenshare-") as folder, answers():
        answer = fetch_chain(client, Files(Path(folder)), options.pool)
        finding = _verified(options, client, answer, known)
    problems: tuple[ProofProblem, ...] = tuple(finding.problems)
    if finding.pin is not None:
        keep_newer(path, finding.pin)
        if other is not None:
            problems = _compared(client, options.pool, finding.pin, other)
    shown = finding.pin or known
    remarks = [*finding.remarks, *(row.text for row in finding.unproven)]
    _print(screen, options, shown, problems, remarks)
    if problems:
        return EXIT_CODES[ProofVerdict.WRONG]
    return EXIT_CODES[ProofVerdict.NOT_PROVEN if finding.unproven else ProofVerdict.PROVEN]


def pinned(path: Path) -> Pin | None:
    """Return the pin in a file, or None if there is none."""
    data = stored_pin(path)
    if data is None:
        return None
    try:
        return read_pin(data)
    except ValueError as problem:
        raise UsageError(f"{path} is not a pin ({problem}); move it away to start again") from None


def keep_newer(path: Path, new: Pin) -> None:
    """Store a pin, unless another run has stored a later one in the meantime."""
    known = pinned(path)
    if known is None or known.log != new.log or known.size <= new.size:
        keep(path, msgspec.json.encode(new))


def proof_of(client: Transport, pool: str, first: int, second: int) -> Proof | None:
    """Fetch the portal's proof that its log of size `second` starts with that of size `first`."""
    if not 0 < first < second:
        return None
    answer = client.get(f"/chain/{part(pool)}/consistency", first=first, second=second)
    try:
        return Proof(first, second, tuple(bytes.fromhex(step) for step in answer["path"]))
    except (KeyError, TypeError, ValueError):
        raise UnreachableError("the portal returned no proof") from None


def _verified(
    options: argparse.Namespace, client: Transport, answer: dict[str, Any], known: Pin | None
) -> HeadFinding:
    size = answer.get("size")
    proof = None
    if known is not None and isinstance(size, int):
        proof = proof_of(client, options.pool, known.size, size)
    keys = [str(key["vkey"]) for key in answer.get("keys", [])]
    note, log = str(answer.get("checkpoint")), str(answer.get("log"))
    return verify_head(note, log, keys, pin=known, given=tuple(options.vkey), proof=proof)


def _given(path: Path) -> Pin:
    try:
        return read_pin(path.read_bytes())
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise UsageError(f"{path} is not a pin: {problem}") from None


def _compared(client: Transport, pool: str, mine: Pin, other: Pin) -> tuple[ProofProblem, ...]:
    first, second = sorted((mine.size, other.size))
    try:
        proof = proof_of(client, pool, first, second)
    except ApiError as refused:
        if refused.status not in (400, 404, 422):
            raise
        # This log is shorter than the log whose head the portal signed for another reader.
        proof = None
    return compare_heads(mine, other, proof)


def _print(
    screen: Terminal,
    options: argparse.Namespace,
    shown: Pin | None,
    problems: tuple[ProofProblem, ...],
    remarks: list[str],
) -> None:
    path = options.file
    answer = {
        "file": str(path),
        "pin": None if shown is None else msgspec.to_builtins(shown),
        "problems": [row._asdict() for row in problems],
        "remarks": remarks,
    }
    if screen.answered(answer):
        return
    if shown is not None:
        keys = ", ".join(map(short_key, shown.keys))
        screen.pairs(
            [
                ("log", inert(shown.log)),
                ("rounds", str(shown.size)),
                ("root", inert(shown.root)),
                ("keys", inert(keys)),
                ("file", inert(path)),
            ]
        )
    for problem in problems:
        screen.line(f"WRONG: {problem.check.value}: {inert(problem.text)}")
    for text in remarks:
        screen.note(inert(text))
    if options.against and shown is not None and not problems:
        screen.line(f"{inert(options.against)} has the same history")
