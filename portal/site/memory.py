"""Memory that was used once is given back: a web process does not grow by its log-ins.

glibc takes a large block from the system, and gives it back when it is freed; but then it keeps
blocks of that size for the next time, in each of its arenas, of which there are eight per core.
Hashing a password takes 16 MB for a moment, on a thread of the request's own: 16 arenas kept 16 MB
each, and a process of 114 MB had 370 MB after a while. With a fixed threshold large blocks always
go back. See docs/adr/0138-many-readers.md.
"""

from __future__ import annotations

import ctypes
import gc

# mallopt(3).
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
LARGE_BYTES = 2**20
ARENAS = 4


def give_back_what_is_freed() -> bool:
    """Set it up, once and before there are threads; False where the C library knows no such thing.

    Elsewhere than on glibc there is nothing to set up: musl and macOS give large blocks back.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGE_BYTES) and mallopt(M_ARENA_MAX, ARENAS))


def keep_what_is_loaded() -> None:
    """Take modules out of every later collection, once they are imported.

    A full collection walked them each time; and after a fork it wrote to pages that a worker's
    processes share.
    """
    gc.collect()
    gc.freeze()
