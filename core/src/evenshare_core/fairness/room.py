"""The moments of a round until which a gang would have fitted, from the snapshot and its terms.

*Moments* are per GPU type: moment k is just before the k-th pick of that type. The last moment,
after all picks, is the end of the round. Free GPUs only decrease during a round: a gang that fits
at a moment fits at all earlier ones. So a single number describes each gang: the last moment at
which it fits, or 0 if it never fits.

Free GPUs are computed backwards from the end of the round. The result is exact, except for two
facts that a decision does not contain. For these the computed free GPUs are a lower bound:

- Jobs with an ended lease may have exchanged places with others after their pick, to stay on
  their node. The final load of each node is the same, but the order in which its GPUs were
  taken is not known. Some node had at least as many free GPUs as any later pick took on a
  node, and as the round leaves.
- A term withdrawn by a limit took its GPUs on unknown nodes.

This module shares no code with the placement of policies.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from evenshare_core.domain.cluster import Node, Placement, gpus_by_node, placement_gpus
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import Snapshot


class PickedTerm(NamedTuple):
    """A pick of the round. `note` names the rule that chose it, if it was not the plain order.

    `is_renewal` if it keeps the GPUs of a lease that ended.
    """

    order: int
    job: int
    tenant: int
    gpu_type: str
    gpus: int
    placement: Placement
    note: str
    is_renewal: bool


def picked_terms(snapshot: Snapshot, decision: Decision) -> list[PickedTerm]:
    """Return the grants and renewals of a round in the order of its picks."""
    places = {lease.id: lease.placement for lease in snapshot.leases} if decision.renewals else {}
    terms = [
        PickedTerm(
            row.order, row.job, row.tenant, row.gpu_type, placement_gpus(row.placement),
            row.placement, row.key.note, is_renewal=False,
        )
        for row in decision.grants
    ]  # fmt: skip # a table
    terms += [
        PickedTerm(
            row.order, row.job, row.tenant, row.gpu_type, row.gpus, places.get(row.lease, ()),
            row.key.note, is_renewal=True,
        )
        for row in decision.renewals
    ]  # fmt: skip # a table
    terms.sort()
    return terms


def free_at_start(nodes: Iterable[Node], kept: Iterable[Lease]) -> dict[str, dict[int, int]]:
    """Return the GPUs of each type and node that are in no `kept` lease."""
    held = gpus_by_node(lease.placement for lease in kept)
    free: dict[str, dict[int, int]] = {}
    for row in nodes:
        free.setdefault(row.gpu_type, {})[row.id] = max(0, row.gpus - held.get(row.id, 0))
    return free


class Room:
    """The last moments at which gangs fit on one GPU type; see the module's docstring for moments.

    With `spread`, a gang that fits on one node may be spread over several.
    """

    def __init__(
        self, sizes: Iterable[int], free: Mapping[int, int], terms: Sequence[PickedTerm],
        *, withdrawn: int = 0, spread: bool = False,
    ) -> None:  # fmt: skip # rows of what belongs together
        """Take the nodes' `sizes`, their `free` GPUs at the start, and the picks in order.

        `withdrawn` counts additional GPUs that were taken at unknown moments and nodes.
        """
        self._size, self._spread = max(sizes, default=0), spread
        self.end = len(terms) + 1
        left = dict(free)
        self._start = (max(left.values(), default=0), sum(left.values()))
        for term in terms:
            for node, gpus in term.placement:
                left[node] = max(0, left.get(node, 0) - gpus)
        taken = accumulate((term.gpus for term in reversed(terms)), initial=sum(left.values()))
        # free GPUs before each pick, and at the end
        self._totals = [max(0, total - withdrawn) for total in taken][::-1]
        self._last = self._last_moments(left, terms, withdrawn)

    def fits_at_start(self, gpus: int) -> bool:
        """Return whether a gang fitted before the first pick, which is known exactly."""
        largest, total = self._start
        return gpus <= (largest if gpus <= self._size and not self._spread else total)

    def last(self, gpus: int) -> int:
        """Return the last moment at which a gang fits; `end` if it fits after the round."""
        if gpus <= self._size and not self._spread:
            return self._last[gpus]
        # Totals never rise, so the moments with enough GPUs come first.
        return bisect_left(self._totals, True, key=lambda total: total < gpus)

    def _last_moments(
        self, left: dict[int, int], terms: Sequence[PickedTerm], withdrawn: int
    ) -> list[int]:
        """Return the last moment at which a gang on one node fits, by size of the gang."""
        last = [0] * (self._size + 1)
        sure = _surely_free(left.values(), withdrawn)  # the most GPUs surely free on one node
        apparent = max(left.values(), default=0)  # the same number if no jobs exchanged places
        known = 0
        for moment, unclear in zip(range(self.end, 0, -1), _unclear(terms), strict=True):
            if moment < self.end:
                for node, gpus in terms[moment - 1].placement:
                    sure = max(sure, gpus)
                    left[node] = left.get(node, 0) + gpus
                    apparent = max(apparent, left[node])
            largest = min(self._size, max(sure, apparent - unclear - withdrawn))
            for gpus in range(known + 1, largest + 1):
                last[gpus] = moment
            known = max(known, largest)
        return last


def _surely_free(free: Iterable[int], withdrawn: int) -> int:
    """Return the most GPUs surely free on one node, wherever the `withdrawn` GPUs were taken."""
    if not withdrawn:
        return max(free, default=0)
    rows = sorted(free, reverse=True)
    above = accumulate(rows)
    # In the worst case, the withdrawn GPUs were on the k nodes with the most free GPUs, which now
    # all have equally many.
    return max((-(-(total - withdrawn) // k) for k, total in enumerate(above, start=1)), default=0)


def _unclear(terms: Sequence[PickedTerm]) -> list[int]:
    """Return the largest error of a node's free GPUs at each moment, from the end to the start.

    An exchange swaps a renewal with the grants that had taken its GPUs. It matters at a moment only
    if some of these were picked before that moment and others after it. So the error is at most the
    GPUs of earlier picks that may have been in an exchange.
    """
    alone = [term.gpus if len(term.placement) == 1 else 0 for term in terms]
    renewed = [gpus if term.is_renewal else 0 for gpus, term in zip(alone, terms, strict=True)]
    granted = [
        gpus for gpus, term in zip(alone, terms, strict=True) if gpus and not term.is_renewal
    ]
    if not granted or max(renewed, default=0) < min(granted):
        return [0] * (len(terms) + 1)
    before = accumulate(map(sum, zip(alone, renewed, strict=True)), initial=0)
    return list(before)[::-1]
