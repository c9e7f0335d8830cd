"""How many GPUs of several types jobs can use at most, where each job accepts some of the types.

Sets of GPU types are bit masks. Jobs that accept the same set are alike; a job is as good as fluid
here, so the most that can be used is a maximum flow from jobs to types, told by its minimum cut:

    usable(T) = min over U within T of supply(U) + asked(T) - asked(U)

supply(U): GPUs of the types of U; asked(U): GPUs of jobs that accept types of U alone. Only unions
of accepted sets can be that minimum, and no type at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def joined(masks: Iterable[int]) -> list[list[int]]:
    """Return the different masks, not 0, in groups that have no type in common; sorted.

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
    """What is asked and supplied now, for one group of `joined`.

    `sets` are all unions of the accepted sets, the whole last; their number may double with each
    type of the group. `asked` and `supply` have a sum of GPUs for each.
    """

    __slots__ = ("_above", "_below", "_with", "asked", "sets", "supply")

    def __init__(self, masks: Iterable[int]) -> None:
        """Nothing is asked and nothing supplied yet; `masks` are those that will be asked for."""
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
        """Jobs that accept `mask` want so many GPUs more."""
        for place in self._above[mask]:
            self.asked[place] += gpus

    def offer(self, bit: int, gpus: int) -> None:
        """There are so many GPUs more of a type; one of another group changes nothing."""
        self.add(self.supply, bit, gpus)

    def add(self, sums: list[int], bit: int, gpus: int) -> None:
        """Add GPUs of a type to sums that have an entry for each of `sets`."""
        for place in self._with.get(bit, ()):
            sums[place] += gpus

    def usable(self) -> list[int]:
        """Return, for each of `sets`, what jobs that accept only its types can use of them."""
        if len(self.sets) == 1:
            return [min(self.asked[0], self.supply[0])]
        over = [asked - there for asked, there in zip(self.asked, self.supply, strict=True)]
        return [
            asked - max(0, *(over[place] for place in below))
            for asked, below in zip(self.asked, self._below, strict=True)
        ]

    def most(self) -> int:
        """Return what all jobs together can use of all types: the last of `usable`."""
        over = max(map(int.__sub__, self.asked, self.supply))
        return self.asked[-1] - max(0, over)

    def within(self, place: int) -> list[int]:
        """Return the places of the sets that the set at `place` contains, itself included."""
        return self._below[place]


def bits_of(gpu_types: Iterable[str]) -> dict[str, int]:
    """Return a bit for each GPU type, in the order of their names."""
    return {name: 1 << place for place, name in enumerate(sorted(set(gpu_types)))}


def mask_of(accepted: Iterable[str], bits: Mapping[str, int]) -> int:
    """Return the mask of the accepted types that there are; of none accepted by name, all."""
    names = list(accepted)
    mask = 0
    for name in names or bits:
        mask |= bits.get(name, 0)
    return mask
