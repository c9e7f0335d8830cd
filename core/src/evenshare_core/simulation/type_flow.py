"""The most GPUs of several types that jobs can use if each job accepts some of the types.

Sets of GPU types are bit masks. Jobs count as divisible. The usable GPUs are thus a maximum flow
from jobs to types, computed by its minimum cut:

    usable(T) = min over U within T of supply(U) + asked(T) - asked(U)

supply(U): GPUs of the types of U; asked(U): GPUs of jobs that accept only types of U. Only unions
of accepted sets, and the empty set, can be the minimum.
"""

from collections.abc import Iterable, Mapping


def joined(masks: Iterable[int]) -> list[list[int]]:
    """Return the distinct nonzero masks in sorted groups that share no type.

    Jobs of different groups never compete for a GPU.
    """
    groups: dict[int, list[int]] = {}
    for mask in sorted(set(masks) - {0}):
        members = [mask]
        for union in [union for union in groups if union & mask]:
            members += groups.pop(union)
        union = 0
        for member in members:
            union |= member
        groups[union] = sorted(members)
    return [groups[union] for union in sorted(groups)]


class TypeFlow:
    """Current demand and supply of a group of `joined`.

    `sets` are all unions of the accepted sets; the union of them all comes last. The number of sets
    may double with each type of the group. `asked` and `supply` have a sum of GPUs for each set.
    """

    __slots__ = ("_above", "_below", "_with", "asked", "sets", "supply")

    def __init__(self, masks: Iterable[int]) -> None:
        """Start without demand and supply; `masks` are all masks that `ask` may get."""
        unions: set[int] = set()
        accepted = sorted(set(masks))
        for mask in accepted:
            unions |= {mask} | {mask | union for union in unions}
        self.sets = sorted(unions, key=lambda union: (union.bit_count(), union))
        places = range(len(self.sets))
        self._above = {
            mask: [place for place in places if mask & ~self.sets[place] == 0] for mask in accepted
        }
        self._below = [
            [place for place in places if self.sets[place] & ~union == 0] for union in self.sets
        ]
        bits = {1 << bit for bit in range(self.sets[-1].bit_length()) if self.sets[-1] >> bit & 1}
        self._with = {
            bit: [place for place in places if self.sets[place] & bit] for bit in sorted(bits)
        }
        self.asked = [0] * len(self.sets)
        self.supply = [0] * len(self.sets)

    def ask(self, mask: int, gpus: int) -> None:
        """Add `gpus` to the demand of jobs that accept `mask`."""
        for place in self._above[mask]:
            self.asked[place] += gpus

    def offer(self, bit: int, gpus: int) -> None:
        """Add `gpus` of a type to the supply; ignore types of other groups."""
        self.add(self.supply, bit, gpus)

    def add(self, sums: list[int], bit: int, gpus: int) -> None:
        """Add GPUs of a type to sums over `sets`."""
        for place in self._with.get(bit, ()):
            sums[place] += gpus

    def usable(self) -> list[int]:
        """Return, for each of `sets`, the GPUs that jobs accepting only its types can use."""
        if len(self.sets) == 1:
            return [min(self.asked[0], self.supply[0])]
        over = [asked - there for asked, there in zip(self.asked, self.supply, strict=True)]
        return [
            asked - max(0, *(over[place] for place in below))
            for asked, below in zip(self.asked, self._below, strict=True)
        ]

    def most(self) -> int:
        """Return the GPUs that all jobs together can use: the last of `usable`."""
        over = max(map(int.__sub__, self.asked, self.supply))
        return self.asked[-1] - max(0, over)

    def within(self, place: int) -> list[int]:
        """Return the places of the subsets of the set at `place`, including itself."""
        return self._below[place]


def bits_of(gpu_types: Iterable[str]) -> dict[str, int]:
    """Return a bit for each GPU type, in the order of their names."""
    return {name: 1 << place for place, name in enumerate(sorted(set(gpu_types)))}


def mask_of(accepted: Iterable[str], bits: Mapping[str, int]) -> int:
    """Return the mask of the accepted types in `bits`; all types if `accepted` is empty."""
    names = list(accepted)
    mask = 0
    for name in names or bits:
        mask |= bits.get(name, 0)
    return mask
