"""Merkle trees of RFC 6962: hashes, roots, proofs, and their verification.

| RFC | here |
|---|---|
| MTH(D[n]) | `root(size, read)` |
| PATH(m, D[n]) | `inclusion_proof(index, size, read)` |
| PROOF(m, D[n]) | `consistency_proof(first, second, read)` |
| 2.1.3.2 and 2.1.4.2 of RFC 9162 | `verify_inclusion`, `verify_consistency` |

A tree is stored as the hashes of its *complete* subtrees, which never change after their creation.
The subtree at (level, number) has the leaves from number * 2^level to (number + 1) * 2^level. Any
other subtree is a fold of at most log2 of them. Callers pass a `Reader` of the stored hashes.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

EMPTY_ROOT = hashlib.sha256(b"").digest()
HASH_BYTES = 32


class Place(NamedTuple):
    """The position of a complete subtree; leaves have `level` 0."""

    level: int
    number: int


# Reads stored hashes: takes complete subtrees and returns their hashes in the same order.
Reader = Callable[[Sequence[Place]], Sequence[bytes]]


class ProofError(ValueError):
    """A proof does not prove its claim."""


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of a leaf: SHA-256 of 0x00 and the entry."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node: SHA-256 of 0x01 and the hashes of its children."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def root(size: int, read: Reader) -> bytes:
    """Return the root of the tree of the first `size` leaves; for 0, the SHA-256 of no bytes."""
    return _hashes([(0, size)], read)[0] if size else EMPTY_ROOT


def completed(size: int, leaves: Sequence[bytes], read: Reader) -> dict[Place, bytes]:
    """Return the complete subtrees that new leaves create in a tree of `size`.

    `leaves` are leaf hashes; the result contains them at level 0. A leaf completes two subtrees on
    average and log2(size) + 1 at most. `read` is called at most once.
    """
    edge = list(_complete(0, size))
    known = dict(zip(edge, read(edge) if edge else (), strict=True))
    new: dict[Place, bytes] = {}
    for index, leaf in enumerate(leaves, start=size):
        place, value = Place(0, index), leaf
        new[place] = value
        while place.number % 2:
            left = Place(place.level, place.number - 1)
            value = node_hash(new[left] if left in new else known[left], value)
            place = Place(place.level + 1, place.number // 2)
            new[place] = value
    return new


def inclusion_proof(index: int, size: int, read: Reader) -> tuple[bytes, ...]:
    """Return the audit path of leaf `index` in the tree of the first `size` leaves.

    Raises:
        ProofError: the tree has no such leaf.
    """
    _guard_leaf(index, size)
    begin, end, ranges = 0, size, []
    while end - begin > 1:
        middle = begin + _split(end - begin)
        if index < middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((begin, middle))
            begin = middle
    return _hashes(ranges[::-1], read)


def consistency_proof(first: int, second: int, read: Reader) -> tuple[bytes, ...]:
    """Return the proof that the tree of `second` leaves extends that of `first`.

    The proof is empty if the trees are equal, or if the first has no leaves: every tree extends the
    empty one.

    Raises:
        ProofError: the first tree is larger than the second.
    """
    _guard_sizes(first, second)
    if first in (0, second):
        return ()
    begin, end, ranges = 0, second, []
    # SUBPROOF of RFC 6962: descend to the subtree that ends where the first tree ends.
    while end != first:
        middle = begin + _split(end - begin)
        if first <= middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((begin, middle))
            begin = middle
    if begin:
        ranges.append((begin, end))
    return _hashes(ranges[::-1], read)


def verify_inclusion(
    leaf: bytes, index: int, size: int, path: Sequence[bytes], root_hash: bytes
) -> None:
    """Check that a leaf hash is at `index` in the tree with this root.

    Raises:
        ProofError: the proof is invalid.

    Source: RFC 9162, 2.1.3.2.
    """
    _guard_hashes(leaf, root_hash, *path)
    _guard_leaf(index, size)
    _, value = _climb(index, size - 1, path, leaf)
    if value != root_hash:
        raise ProofError(f"leaf {index} is not in the tree of this root")


def verify_consistency(
    first: int, second: int, path: Sequence[bytes], first_root: bytes, second_root: bytes
) -> None:
    """Check that the tree of the second root begins with the leaves of the tree of the first root.

    Raises:
        ProofError: the proof is invalid.

    Source: RFC 9162, 2.1.4.2, which does not cover equal sizes and size 0.
    """
    _guard_hashes(first_root, second_root, *path)
    _guard_sizes(first, second)
    if first in (0, second):
        if path:
            raise ProofError("the path must be empty if both sizes are equal or the first is 0")
        if first_root != (second_root if first else EMPTY_ROOT):
            raise ProofError(f"two roots of {first} leaves differ")
        return
    if not path:
        raise ProofError("the path is empty")
    _verify_growth(first, second, list(path), first_root, second_root)


def _verify_growth(
    first: int, second: int, path: list[bytes], first_root: bytes, second_root: bytes
) -> None:
    if first & (first - 1) == 0:
        path.insert(0, first_root)
    here, last = first - 1, second - 1
    while here % 2:
        here, last = here >> 1, last >> 1
    old, new = _climb(here, last, path[1:], path[0])
    if old != first_root:
        raise ProofError(f"the first tree, of {first} leaves, has another root")
    if new != second_root:
        raise ProofError(f"the tree of {second} leaves does not begin with that of {first}")


def _climb(here: int, last: int, path: Sequence[bytes], start: bytes) -> tuple[bytes, bytes]:
    """Return two roots: of the tree that ends with a node, and of the tree that ends with `last`.

    Raises:
        ProofError: the path is longer or shorter than the height of the tree.
    """
    old = new = start
    for step in path:
        if last == 0:
            raise ProofError("the path is longer than the height of the tree")
        if here % 2 or here == last:
            old, new = node_hash(step, old), node_hash(step, new)
            while not here % 2 and here:
                here, last = here >> 1, last >> 1
        else:
            new = node_hash(new, step)
        here, last = here >> 1, last >> 1
    if last:
        raise ProofError("the path is shorter than the height of the tree")
    return old, new


def _guard_leaf(index: int, size: int) -> None:
    if not 0 <= index < size:
        raise ProofError(f"a tree of {size} leaves has no leaf {index}")


def _guard_sizes(first: int, second: int) -> None:
    if not 0 <= first <= second:
        raise ProofError(f"a tree of {second} leaves does not begin with one of {first}")


def _guard_hashes(*hashes: bytes) -> None:
    if any(len(value) != HASH_BYTES for value in hashes):
        raise ProofError(f"a hash has {HASH_BYTES} bytes")


def _split(size: int) -> int:
    """Return the largest power of two below `size`, which is 2 or more."""
    return 1 << ((size - 1).bit_length() - 1)


def _complete(begin: int, end: int) -> Iterator[Place]:
    """Yield the complete subtrees of the leaves begin..end, the largest first.

    `begin` is a multiple of the power of two at or above the number of leaves.
    """
    while begin < end:
        level = (end - begin).bit_length() - 1
        yield Place(level, begin >> level)
        begin += 1 << level


def _hashes(ranges: Sequence[tuple[int, int]], read: Reader) -> tuple[bytes, ...]:
    """Return the hash of each range of leaves; the stored hashes are read at once."""
    parts = [list(_complete(*range_)) for range_ in ranges]
    places = [place for part in parts for place in part]
    values = dict(zip(places, read(places) if places else (), strict=True))
    folded = []
    for part in parts:
        value = values[part[-1]]
        for place in reversed(part[:-1]):
            value = node_hash(values[place], value)
        folded.append(value)
    return tuple(folded)
