"""Leases that a round ends before their expiry: their notices, and the leases that are spared.

`scheduling.engine.apply` calls it, under the pool's fence. Source:
`docs/adr/0150-a-notice-stands.md`.
"""

from collections.abc import Collection, Sequence
from typing import Any

from evenshare_core.domain.decision import Decision, Grant, Renew
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import SupersededReason
from scheduling.engine.write import RoundPlan, RoundWrite
from scheduling.models import Node


def notices_of(plan: RoundPlan) -> dict[int, dict[str, Any]]:
    """Return the data of the events that record notices, by lease.

    `notice_s`: the maximum time that the process has to save its state, in seconds of pool time.
    """
    return {
        row.lease: {
            "rule": row.rule.value,
            "for_job": row.for_job,
            "for_tenant": row.for_tenant,
            "numbers": row.numbers,
            "notice_s": plan.grace_s,
        }
        for row in plan.decision.preemptions
    }


def spared_leases(write: RoundWrite) -> dict[int, SupersededReason]:
    """Return the leases that continue although the decision preempts them, with the reasons.

    Each of them would end for a job that cannot take its GPUs. This job was cancelled meanwhile,
    its node was drained or lost, or its tenant can no longer pay. A lease is spared only if nothing
    else in the decision depends on its end. So the decision may contain no other new lease on its
    nodes. It may also contain no new term of its tenant on its GPU type, since own and borrowed
    GPUs were counted without the lease.
    """
    decision = write.plan.decision
    lost = _lost_grants(write)
    spared = {row.lease: row for row in decision.preemptions if row.for_job in lost}
    leases = {lease.id: lease for lease in write.plan.snapshot.leases}
    while spared:
        # A spared lease does not move, so the new lease of its own job is left out, too.
        left_out = lost.keys() | {row.job for row in spared.values()}
        needed = [id_ for id_ in spared if _is_needed(leases[id_], decision, left_out)]
        if not needed:
            break
        for id_ in needed:
            del spared[id_]
    return {id_: lost[row.for_job] for id_, row in spared.items()}


def _is_needed(lease: Lease, decision: Decision, left_out: Collection[int]) -> bool:
    """Return whether another part of the decision depends on the lease's end."""
    nodes = {node for node, _ in lease.placement}
    grants = [grant for grant in decision.grants if grant.job not in left_out]
    if any(node in nodes for grant in grants for node, _ in grant.placement):
        return True
    claim = (lease.tenant, lease.gpu_type)
    terms: list[Grant | Renew] = [*grants, *decision.renewals]
    return any((term.tenant, term.gpu_type) == claim for term in terms)


def _lost_grants(write: RoundWrite) -> dict[int, SupersededReason]:
    """Return jobs for which leases are preempted but which get no GPUs now, with the reasons."""
    decision = write.plan.decision
    beneficiaries = {row.for_job for row in decision.preemptions}
    grants = [grant for grant in decision.grants if grant.job in beneficiaries]
    if not grants:
        return {}
    waiting = _lock_waiting(write, [grant.job for grant in grants])
    up = _nodes_up(grants)
    lost: dict[int, SupersededReason] = {}
    for grant in grants:
        if grant.job in write.unfunded_jobs:
            lost[grant.job] = SupersededReason.SPARED_NO_CREDIT
        elif grant.job not in waiting:
            lost[grant.job] = SupersededReason.SPARED_JOB_GONE
        elif any(node not in up for node, _ in grant.placement):
            lost[grant.job] = SupersededReason.SPARED_NODE_GONE
    return lost


def _lock_waiting(write: RoundWrite, jobs: Sequence[int]) -> set[int]:
    """Lock jobs; return those that still wait, or whose lease this round ends."""
    write.cursor.execute(
        """
        SELECT id FROM scheduling_job
        WHERE id = ANY(%s) AND cancel_asked_at IS NULL
          AND (state = 'pending' OR (state = 'running' AND id = ANY(%s)))
        ORDER BY id FOR NO KEY UPDATE
        """,
        [list(jobs), [end.job for end in write.plan.decision.ends]],
    )
    return {job for (job,) in write.cursor.fetchall()}


def _nodes_up(grants: Sequence[Grant]) -> set[int]:
    nodes = {node for grant in grants for node, _ in grant.placement}
    up = Node.objects.filter(id__in=nodes, effective_state=Node.State.UP)
    return set(up.values_list("id", flat=True))
