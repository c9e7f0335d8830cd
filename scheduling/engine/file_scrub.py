"""Looks at files of rounds again, some at a time: one that is damaged is known before it is asked
for."""

from __future__ import annotations

import structlog

from evenshare_core.domain.values import sha256_hex
from scheduling.engine.clock import wall_now
from scheduling.models import RoundArchive
from scheduling.selectors.rounds.files import ArchiveError, read_file
from tenants.scopes import site_scope

log = structlog.get_logger(__name__)

# An hour: of 90 days with a round every 10 s, all are looked at within two days a pool.
FILES_AT_ONCE = 40
BYTES_AT_ONCE = 256 * 2**20
PROBLEM_MAX = 255


def scrub_files(*, files: int = FILES_AT_ONCE, size: int = BYTES_AT_ONCE) -> int:
    """Compare the files that were not looked at for longest with their hashes; return how many.

    At least one, and no more bytes than are asked for.
    """
    rows = RoundArchive.objects.filter(dropped_at=None).order_by("checked_at", "id")
    looked = 0
    for row in rows[:files]:
        if looked and (size := size - row.bytes) < 0:
            break
        look_at(row)
        looked += 1
    return looked


def look_at(archive: RoundArchive) -> str:
    """Compare a file with what was written; note what is wrong with it, and return that."""
    try:
        is_same = sha256_hex(read_file(archive)) == archive.sha256
        problem = "" if is_same else f"the file {archive.name} is another one than was written"
    except ArchiveError as error:
        problem = str(error).rpartition(": ")[2]
    problem = problem[:PROBLEM_MAX]
    if problem:
        log.error("rounds.file_damaged", file=archive.name, why=problem)
    with site_scope():
        RoundArchive.objects.filter(pk=archive.pk).update(problem=problem, checked_at=wall_now())
    return problem
