"""Placement stability: a round's picks exchange their places, so that jobs keep their nodes.

A round may give the GPUs of an expired lease to a job that ranks higher. If it then also picks the
lease's own job, that job would have to move. The move costs a checkpoint and a cold start. It is
avoidable if the higher-ranked job can use the place that the lease's job would get. The picks,
their order and their keys stay as decided; only places are exchanged.
"""

from collections.abc import Iterable, Sequence

import msgspec

from evenshare_core.domain.decision import Grant, Renew
from evenshare_core.domain.leases import Lease


def keep_placements(
    grants: Sequence[Grant], renewals: Sequence[Renew], leases: Iterable[Lease]
) -> tuple[list[Grant], list[Renew]]:
    """Turn grants to jobs that hold an expired lease into renewals, if places can be exchanged.

    Only placements on one node are exchanged: the jobs that took exactly the lease's GPUs get the
    new place of the lease's job. A job still moves if its lease is on several nodes, or if a larger
    gang took its GPUs. The use of each node is unchanged, so all picks still fit.
    """
    held = {lease.job: lease for lease in leases}
    placed = {grant.job: grant for grant in grants}
    on_node: dict[int, list[int]] = {}  # single-node grants by node, in pick order
    for grant in grants:
        if len(grant.placement) == 1:
            on_node.setdefault(grant.placement[0][0], []).append(grant.job)
    kept = list(renewals)
    for grant in grants:
        lease = held.get(grant.job)
        if lease is None or len(lease.placement) != 1 or len(grant.placement) != 1:
            continue
        if lease.gpu_type != grant.gpu_type:
            continue
        home, gpus = lease.placement[0]
        away = placed[grant.job].placement[0][0]
        guests = _exactly(gpus, [job for job in on_node.get(home, []) if job != grant.job], placed)
        if home != away and guests is None:
            continue
        for job in (guests or []) if home != away else []:
            guest = placed[job]
            place = ((away, guest.placement[0][1]),)
            placed[job] = msgspec.structs.replace(guest, placement=place)
            on_node[home].remove(job)
            on_node[away].append(job)
        on_node[away].remove(grant.job)
        del placed[grant.job]
        kept.append(Renew.of(lease, grant.order, grant.key))
    order = [grant for grant in grants if grant.job in placed]
    return [placed[grant.job] for grant in order], sorted(kept, key=lambda one: one.order)


def _exactly(gpus: int, jobs: Sequence[int], placed: dict[int, Grant]) -> list[int] | None:
    """Return jobs whose GPUs add up to exactly `gpus`, larger jobs first, or None."""
    chosen, left = [], gpus
    for job in sorted(jobs, key=lambda job: (-placed[job].placement[0][1], placed[job].order)):
        size = placed[job].placement[0][1]
        if size <= left:
            chosen.append(job)
            left -= size
        if left == 0:
            return chosen
    return None
