"""Settings of the allocator: freed memory returns to the system, so log-ins do not grow a process.

glibc frees a large block to the system, but from then on keeps blocks of that size in each of its
arenas, eight per core. Hashing a password takes 16 MB for a moment, on the request's
own thread. So 16 arenas kept 16 MB each, and a process of 114 MB had 370 MB after a while. With a
fixed threshold large blocks are always returned. See docs/adr/0138-many-readers.md.
"""

import ctypes
import gc

# mallopt(3).
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
LARGE_BYTES = 2**20
ARENAS = 4


def give_back_what_is_freed() -> bool:
    """Set the threshold, once and before threads start; return False without glibc.

    Other C libraries need nothing: musl and macOS return large blocks.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGE_BYTES) and mallopt(M_ARENA_MAX, ARENAS))


def keep_what_is_loaded() -> None:
    """Exclude modules from all later garbage collections, once they are imported.

    Otherwise each full collection visits them. After a fork, it would also write to pages that a
    worker's processes share.
    """
    gc.collect()
    gc.freeze()
