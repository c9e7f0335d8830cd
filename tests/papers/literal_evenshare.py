"""Rule 4 of `evenshare` in its literal form, which ranks all leases of each node each time.

It is the baseline of `benchmarks.decide_evenshare`. Tests compare the policy's search of leases to
preempt with it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from evenshare_core.domain.leases import Lease
from evenshare_core.policies.evenshare import room
from evenshare_core.policies.shared.preemption import (
    Choice,
    ClearedNode,
    LeaseIndex,
    VictimKey,
    VictimRule,
)

Ranked = tuple[float, Lease]


def literal_victims(
    node: int, free: Mapping[int, int], index: LeaseIndex, rule: VictimRule
) -> Choice | None:
    """Return the fewest leases of a node that must end for the gang, or None if none suffice."""
    needed = rule.gpus - free.get(node, 0)
    if needed <= 0:
        return None
    rows = [(rule.rank(lease), lease) for lease in index.by_node.get(node, ())]
    spare = {lease.tenant: rule.spare(lease.tenant) for _, lease in rows}
    victims = _fewest(needed, [row for row in rows if row[0] > rule.above], spare)
    taken = sum(lease.gpus for _, lease in victims)
    if not victims or taken > rule.most_gpus:
        return None
    key = (len(victims), taken - needed, -min(row[0] for row in victims), node)
    return key, ClearedNode(node, tuple(lease for _, lease in victims))


def _fewest(needed: int, rows: Sequence[Ranked], spare: dict[int, int | None]) -> list[Ranked]:
    """Choose the largest leases first, and last the smallest one that frees enough GPUs."""
    chosen: list[Ranked] = []
    rest = list(rows)
    while needed > 0:
        rest = [
            row for row in rest if (limit := spare[row[1].tenant]) is None or row[1].gpus <= limit
        ]
        enough = [row for row in rest if row[1].gpus >= needed]
        if enough:
            row = min(enough, key=lambda row: (row[1].gpus, -row[0], row[1].id))
        elif rest:
            row = min(rest, key=lambda row: (-row[1].gpus, -row[0], row[1].id))
        else:
            return []
        rest.remove(row)
        chosen.append(row)
        lease = row[1]
        needed -= lease.gpus
        limit = spare[lease.tenant]
        if limit is not None:
            spare[lease.tenant] = limit - lease.gpus
    return chosen


def literal_fewest_victims(
    nodes: Iterable[int],
    free: Mapping[int, int],
    index: LeaseIndex,
    rule: VictimRule,
    known: Choice | None = None,
) -> Choice | None:
    """Return the best of the known choice and these nodes' choices; None without a choice."""
    of_nodes = [literal_victims(node, free, index, rule) for node in nodes]
    choices = [one for one in (known, *of_nodes) if one is not None]
    return min(choices, key=lambda one: one[0], default=None)


class LiteralSearch:
    """The search for the best choice among nodes, which checks again each node that had a choice.

    If a node's choice becomes worse, its new value counts.
    """

    def __init__(self, free: Mapping[int, int], index: LeaseIndex, rule: VictimRule) -> None:
        """Check every node once."""
        self._free, self._index, self._rule = free, index, rule
        choices = [literal_victims(node, free, index, rule) for node in index.by_node]
        self._known: dict[int, VictimKey] = {
            one[0][3]: one[0] for one in choices if one is not None
        }

    def best(self) -> Choice | None:
        now = {
            node: literal_victims(node, self._free, self._index, self._rule) for node in self._known
        }
        while self._known:
            key = min(self._known.values())
            one = now[key[3]]
            if one is None:
                del self._known[key[3]]
            elif one[0] > key:
                self._known[key[3]] = one[0]
            else:
                return one
        return None


@contextmanager
def literal_search() -> Iterator[None]:
    """Make `evenshare` use this search inside the block."""
    with (
        patch.object(room, "VictimSearch", LiteralSearch),
        patch.object(room, "fewest_victims", literal_fewest_victims),
    ):
        yield
