"""A trace's bytes as numbered lines, and detection of other file types by their first bytes.

Lines are read one by one and limited in length, so memory holds only the current line.
"""

import gzip
import re
import zlib
from collections.abc import Iterator
from typing import IO

from evenshare_core.simulation.trace_reads import BadLine, HeaderError

GZIP_MAGIC = b"\x1f\x8b"
LINE_MAX = 64 * 1024
HEAD_BYTES = 4096

DAMAGED = "the file is damaged from here on"
_UNPACK = "unpack it, or pack it with gzip"
_DAMAGE = (EOFError, OSError, zlib.error)
_NO_TEXT = (
    (b"PK\x03\x04", "is a ZIP archive or a spreadsheet", "save the jobs as CSV"),
    (b"\xd0\xcf\x11\xe0", "is an old spreadsheet or document", "save the jobs as CSV"),
    (b"PAR1", "is Parquet", "save the jobs as CSV"),
    (b"SQLite format 3", "is an SQLite database", "save the jobs as CSV"),
    (b"\xfd7zXZ", "is packed with xz", _UNPACK),
    (b"BZh", "is packed with bzip2", _UNPACK),
    (b"\x28\xb5\x2f\xfd", "is packed with zstd", _UNPACK),
)
_MARKS = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
# Windows-1252 has characters where Latin-1 has control characters, which do not occur in text.
_WINDOWS = re.compile(rb"[\x80-\x9f]")


def unpacked(file: IO[bytes]) -> IO[bytes]:
    """Return the file, decompressed if its first bytes are those of gzip."""
    magic = file.read(2)
    file.seek(0)
    return gzip.GzipFile(fileobj=file) if magic == GZIP_MAGIC else file  # type: ignore[return-value]  # it reads as IO[bytes] does


def head_of(file: IO[bytes]) -> bytes:
    """Return the file's first bytes, up to `HEAD_BYTES`, and rewind it.

    The result is empty if the file is already damaged there; `numbered_lines` then gives the
    reason.

    Raises:
        HeaderError: the bytes are not text, or have another encoding.
    """
    try:
        head = file.read(HEAD_BYTES)
    except _DAMAGE:
        head = b""
    file.seek(0)
    for magic, what, advice in _NO_TEXT:
        if head.startswith(magic):
            raise HeaderError(f"the file {what}; {advice}")
    encoding = next((name for mark, name in _MARKS if head.startswith(mark)), "")
    if not encoding and head.count(0) * 4 > len(head):
        encoding = "UTF-16"
    if encoding:
        raise HeaderError(f"the file's encoding is {encoding}, not UTF-8; convert it to UTF-8")
    return head


def numbered_lines(file: IO[bytes], *, comment: bytes = b"") -> Iterator[tuple[int, str] | BadLine]:
    """Yield lines with their numbers from 1; a damaged or overlong line becomes a bad line.

    Lines that are empty or start with `comment` are left out.
    """
    number = 0
    while True:
        number += 1
        try:
            raw = file.readline(LINE_MAX + 1)
            if not raw:
                return
            if len(raw) > LINE_MAX:
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(LINE_MAX)
                yield BadLine(number, "", f"is longer than {LINE_MAX:,} bytes")
                continue
        except _DAMAGE as error:
            yield BadLine(number, "", f"{DAMAGED} ({error})")
            return
        if comment and raw.startswith(comment):
            continue
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            yield BadLine(number, "", f"is not UTF-8; it may be {_perhaps(raw)}")
            continue
        if "\x00" in text:
            yield BadLine(number, "", "has a NUL character")
        elif text.strip():
            yield number, text.rstrip("\r\n")


def _perhaps(raw: bytes) -> str:
    return "Windows-1252" if _WINDOWS.search(raw) else "Latin-1"
