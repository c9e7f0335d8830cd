"""Chooses the slots of new leases on their nodes, and finds waiting leases that may start."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from evenshare_core.domain.cluster import Placement
from scheduling.models import Node
from tenants.sql import fetch_rows


@dataclass
class SlotMap:
    """The slots of some nodes: the free ones, and those of stopping leases."""

    free: dict[int, list[int]] = field(default_factory=dict)
    freeing: dict[int, list[int]] = field(default_factory=dict)

    def take(self, placement: Placement) -> tuple[list[tuple[int, int]], bool] | None:
        """Choose the lowest free slots first, then slots that are about to be released.

        Return ([(node, slot), ...], whether all slots are free now). Return None if a node has too
        few slots, because it was drained or lost since the snapshot.
        """
        chosen: list[tuple[int, int]] = []
        all_free = True
        for node, gpus in placement:
            free, freeing = self.free.get(node, []), self.freeing.get(node, [])
            if len(free) + len(freeing) < gpus:
                return None
            now = free[:gpus]
            later = freeing[: gpus - len(now)]
            all_free = all_free and not later
            chosen += [(node, slot) for slot in (*now, *later)]
        for node, slot in chosen:
            (self.free[node] if slot in self.free[node] else self.freeing[node]).remove(slot)
        return chosen, all_free


def read_slots(node_ids: Iterable[int]) -> SlotMap:
    """Read the slots of nodes that are up; the caller holds the pool's fence."""
    wanted = sorted(set(node_ids))
    up = Node.objects.filter(id__in=wanted, effective_state=Node.State.UP)
    gpus_of = dict(up.values_list("id", "gpus"))
    rows = fetch_rows(
        """
        SELECT s.node_id, s.slot, bool_or(s.planned),
               bool_or(s.holding AND l.state <> 'stopping')
        FROM scheduling_leaseslot s JOIN scheduling_lease l ON l.id = s.lease_id
        WHERE s.node_id = ANY(%s) AND (s.holding OR s.planned)
        GROUP BY s.node_id, s.slot
        """,
        [wanted],
    )
    taken = {(node, slot): (planned, held) for node, slot, planned, held in rows}
    slots = SlotMap()
    for node, gpus in gpus_of.items():
        slots.free[node] = [slot for slot in range(gpus) if (node, slot) not in taken]
        slots.freeing[node] = [
            slot for slot in range(gpus) if taken.get((node, slot)) == (False, False)
        ]
    return slots


def find_ready_leases(pool_id: int) -> list[int]:
    """Return the waiting leases whose GPUs have all been released."""
    rows = fetch_rows(
        """
        SELECT w.id FROM scheduling_lease w
        WHERE w.pool_id = %s AND w.state = 'waiting'
          AND NOT EXISTS (
              SELECT FROM scheduling_leaseslot mine
              JOIN scheduling_leaseslot other
                ON other.node_id = mine.node_id AND other.slot = mine.slot AND other.holding
              WHERE mine.lease_id = w.id)
          AND NOT EXISTS (
              SELECT FROM scheduling_lease old
              WHERE old.job_id = w.job_id
                AND old.state IN ('launching', 'running', 'stopping'))
        ORDER BY w.id
        """,
        [pool_id],
    )
    return [lease for (lease,) in rows]
