"""Benchmark of a log with a million entries in Postgres: appends, proofs and signed heads.

Run `python -m benchmarks.transparency [ENTRIES]`. The log is filled in batches. Then records are
appended one by one, each in its transaction, and proofs of records all over the log are requested.
The plain method computes each root from all leaf hashes, which are in memory.
"""

import random
import statistics
import sys
import time
from collections.abc import Callable

from benchmarks.temporary_database import temporary_database
from evenshare_core.chain import merkle
from evenshare_core.chain.records import SCHEMA, RoundRecord, record_bytes, record_hash

ENTRIES, BATCH, ASKED = 1_000_000, 5000, 300
OWN = 20  # the number of tenants in a round
LOG = "evenshare/es/rounds/bench"
GOAL_APPEND_MS = 5.0


def main() -> None:
    with temporary_database():
        measure(int(sys.argv[1]) if len(sys.argv) > 1 else ENTRIES)


def records(first: int, count: int, previous: str) -> list[bytes]:
    """Return records of rounds, each with the hash of the record before it."""
    made = []
    for place in range(first, first + count):
        own = tuple(f"{place * OWN + tenant:064x}" for tenant in range(OWN))
        data = record_bytes(
            RoundRecord(SCHEMA, LOG, place + 1, place, previous, f"{place:064x}", own)
        )
        previous = record_hash(data)
        made.append(data)
    return made


def measure(entries: int) -> None:
    from tenants import transparency

    leaves: list[bytes] = []
    previous = ""
    began = time.perf_counter()
    for first in range(0, entries, BATCH):
        made = records(first, min(BATCH, entries - first), previous)
        transparency.append(LOG, made, first)
        leaves += [merkle.leaf_hash(data) for data in made]
        previous = leaves[-1].hex()
    filled_s = time.perf_counter() - began
    print(
        f"log of {entries:,} records of {len(made[0]):,} bytes, filled by {BATCH:,} in "
        f"{filled_s:.0f} s: {filled_s / entries * 1000:.2f} ms each"
    )
    append_ms = appended_ms(transparency.append, entries, previous, leaves)
    root_s = timed(lambda: plain_root(leaves))
    print(
        f"all leaves hashed again: {root_s * 1000:,.0f} ms for one root, "
        f"{root_s * 1000 / append_ms:,.0f} times an append"
    )
    proofs(leaves, entries)
    verdict = "met" if append_ms <= GOAL_APPEND_MS else "MISSED"
    print(f"goal: an append in at most {GOAL_APPEND_MS:.0f} ms: {verdict}")


def appended_ms(
    append: Callable[[str, list[bytes], int], int],
    entries: int,
    previous: str,
    leaves: list[bytes],
) -> float:
    """Append records one by one, print numbers of reads and writes, and return the median ms."""
    took, written = [], []
    for place in range(entries, entries + ASKED):
        (data,) = records(place, 1, previous)
        took.append(timed(lambda data=data, place=place: append(LOG, [data], place)) * 1000)
        written.append(1 + (place ^ (place + 1)).bit_length() - 1)
        leaves.append(merkle.leaf_hash(data))
        previous = leaves[-1].hex()
    median = statistics.median(took)
    reads = entries.bit_count()
    print(
        f"append of one: {median:.2f} ms (p95 {statistics.quantiles(took, n=20)[18]:.2f}); reads"
        f" {reads} hashes, writes {statistics.mean(written):.1f} rows on average,"
        f" {max(written)} at most"
    )
    return median


def proofs(leaves: list[bytes], entries: int) -> None:
    """Time proofs and heads, and verify each as its reader does."""
    from evenshare_core.chain.checkpoints import verify_note
    from tenants import transparency

    size = transparency.size(LOG)
    note = transparency.checkpoint_note(LOG)
    vkeys = [key.vkey for key in transparency.public_keys(LOG)]
    head = verify_note(note, vkeys, LOG)
    old = plain_root(leaves[: entries // 3])
    chance = random.Random(1)  # noqa: S311 - places to ask for, the same each time
    places = [chance.randrange(size) for _ in range(ASKED)]
    paths: dict[int, tuple[bytes, ...]] = {}

    def prove(place: int) -> None:
        paths[place] = transparency.inclusion(LOG, place, size)

    took = [timed(lambda place=place: prove(place)) * 1000 for place in places]
    checked = [
        timed(
            lambda place=place: merkle.verify_inclusion(
                leaves[place], place, size, paths[place], head.root
            )
        )
        for place in places
    ]
    print(
        f"proof of an entry: {statistics.median(took):.2f} ms, of {len(paths[places[0]])} hashes;"
        f" checked in {statistics.median(checked) * 1e6:.0f} us"
    )
    growth = transparency.consistency(LOG, entries // 3, size)
    merkle.verify_consistency(entries // 3, size, growth, old, head.root)
    grew = [
        timed(lambda place=place: transparency.consistency(LOG, place + 1, size)) * 1000
        for place in places
    ]
    heads = [timed(lambda: transparency.checkpoint_note(LOG)) * 1000 for _ in range(ASKED)]
    print(
        f"proof of growth: {statistics.median(grew):.2f} ms; a signed head:"
        f" {statistics.median(heads):.2f} ms"
    )


def plain_root(leaves: list[bytes]) -> bytes:
    """Compute the root level by level; an unpaired last node moves to the next level unchanged."""
    level = leaves
    while len(level) > 1:
        pairs = [
            merkle.node_hash(level[place], level[place + 1])
            for place in range(0, len(level) - 1, 2)
        ]
        level = pairs + level[len(level) & ~1 :]
    return level[0]


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
