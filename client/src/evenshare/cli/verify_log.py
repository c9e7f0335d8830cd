"""Fetches, checks and pins the head of a pool's log, for a verification.

Used by `round verify` and `statement verify`. Imported only if evenshare-core is installed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from evenshare_core.verification.heads import HeadCheck, HeadFinding, Pin
from evenshare_core.verification.history import RoundHistory
from evenshare_core.verification.verdict import TO_DO, Gap, Unproven

from .api import Transport
from .pins import pin_file
from .verify_files import Files, fetch_chain, fetch_consistency
from .verify_pins import keep_newer, pinned


def pin_of(client: Transport, pool: str) -> tuple[Path, Pin | None]:
    """Return the path of a pool's pin file, and the pin."""
    path = pin_file(os.environ, client.server.url, pool)
    return path, pinned(path)


def fetch_log(client: Transport, files: Files, pool: str) -> tuple[int, int] | None:
    """Fetch a pool's log, with the proof from the pin; return its newest round and its size.

    Return None if no round is in the log.
    """
    chain = fetch_chain(client, files, pool)
    newest, size = chain.get("round"), chain.get("size")
    if not isinstance(newest, int) or not isinstance(size, int) or size < 1:
        return None
    _, pin = pin_of(client, pool)
    if pin is not None and 0 < pin.size < size:
        fetch_consistency(client, files, pool, pin.size, size)
    return newest, size


def checked_head(
    history: RoundHistory, pool: str, pin: Pin | None, given: Sequence[str], *, from_files: bool
) -> HeadFinding:
    """Check the head, and the records that were read, against a pin.

    `given` has keys that replace the pinned ones. `from_files` means that the files may be from an
    earlier run.
    """
    if from_files and pin is not None and pin.size > history.chain.size:
        # The files may be older than the pin, so an older head does not mean a shortened log.
        finding = history.head(None, tuple(given) or pin.keys)
        text = f"the files are older than the head of {pin.size} that is pinned"
        finding.unproven.append(Unproven(Gap.HEAD, f"{text}, and no proof joins the two"))
        finding.pin = None
    else:
        finding = history.head(pin, tuple(given))
    if history.log.rpartition("/")[2] != pool:
        finding.refuse(HeadCheck.LOG, f"{history.log} is not the log of {pool}")
        finding.pin = None
    return finding


def plain_head(head: HeadFinding) -> dict[str, Any]:
    return {
        "log": head.log,
        "size": head.size,
        "root": head.root.hex(),
        "problems": [row._asdict() for row in head.problems],
        "unproven": plain_gaps(head.unproven),
        "remarks": head.remarks,
    }


def plain_gaps(unproven: Iterable[Unproven]) -> list[dict[str, str]]:
    return [{**row._asdict(), "to_do": TO_DO[row.gap]} for row in unproven]


def keep_head(path: Path, head: HeadFinding, pin: Pin | None, *, from_files: bool) -> None:
    """Pin a head that has no faults."""
    if head.pin is None:
        return
    if from_files and pin is None:
        # The origin of files is unknown, so the first pin of a portal comes from the portal
        # itself.
        head.remarks.append("files are never pinned; run evenshare round pin")
    else:
        keep_newer(path, head.pin)
