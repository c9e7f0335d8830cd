"""Checks a few files of rounds per call, so that damage is found before a file is needed."""

import structlog

from evenshare_core.domain.values import sha256_hex
from scheduling.engine.clock import wall_now
from scheduling.models import RoundArchive
from scheduling.selectors.rounds.files import ArchiveError, read_file
from tenants.scopes import site_scope

log = structlog.get_logger(__name__)

# Limits per hour. With a round every 10 s, 90 days of files are checked within two days per pool.
FILES_AT_ONCE = 40
BYTES_AT_ONCE = 256 * 2**20
PROBLEM_MAX = 255


def scrub_files(*, files: int = FILES_AT_ONCE, size: int = BYTES_AT_ONCE) -> int:
    """Compare the least recently checked files with their hashes; return their number.

    It checks at least one file, and at most `files` files or `size` bytes.
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
    """Compare a file with its stored hash; store the problem, if any, and return it."""
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
