"""The new leases of a round: their slots, rows and launch intents.

It writes in the transaction of `scheduling.engine.apply`.
"""

from datetime import datetime
from typing import Any, NamedTuple

from evenshare_core.domain.decision import Grant
from evenshare_core.domain.instants import from_us
from evenshare_core.domain.reasons import SupersededReason
from evenshare_core.domain.values import canonical_bytes
from evenshare_core.money.fixed_point import to_credits
from scheduling.engine.bulk import insert_rows, next_ids
from scheduling.engine.slots import read_slots
from scheduling.engine.write import Kind, RoundWrite, write_intents, write_terms
from scheduling.models import GpuType, Intent, Lease


class _New(NamedTuple):
    """A lease to be written. `ready`: its slots are free now, and its job holds no other lease."""

    id: int
    number: int
    item: Grant
    places: list[tuple[int, int]]
    ready: bool


def write_grants(write: RoundWrite) -> int:
    """Create new leases. A lease whose GPUs are still being released waits for them.

    A grant is superseded if its job was held or no longer waits, or its node was drained or lost.
    It is also superseded if its tenant's credit was promised elsewhere since the snapshot. The job
    of a superseded grant is left unchanged.
    """
    if not write.plan.decision.grants:
        return 0
    new = _placed(write, _grantable(write))
    write.cursor.execute(
        """
        UPDATE scheduling_job SET state = 'running', leases_held = leases_held + 1,
               terms = terms + 1, reason_code = '', version = version + 1
        WHERE id = ANY(%s)
        """,
        [[lease.item.job for lease in new]],
    )
    types = dict(GpuType.objects.values_list("name", "id"))
    until = _protected_until(write)
    insert_rows("scheduling_lease", _COLUMNS, (_row(write, lease, types, until) for lease in new))
    insert_rows(
        "scheduling_leaseslot",
        ("lease_id", "node_id", "slot", "holding", "planned"),
        (
            (lease.id, node, slot, lease.ready, not lease.ready)
            for lease in new
            for node, slot in lease.places
        ),
    )
    write_terms(write, [(lease.id, 1, lease.item) for lease in new], Kind.GRANTED)
    write_intents(write, Intent.Kind.LAUNCH, [(lease.id, 1) for lease in new if lease.ready])
    return len(new)


def _moved(write: RoundWrite) -> set[int]:
    """Return the jobs whose lease ends in this round; they may get a new lease at once."""
    return {item.job for item in write.plan.decision.ends}


def _held(write: RoundWrite) -> set[int]:
    """Return the waiting jobs whose last lease has not ended yet.

    This happens if a job's next lease was withdrawn, for instance while an engine did not answer.
    Its new lease then waits for the end of the last one.
    """
    write.cursor.execute(
        """
        SELECT job_id FROM scheduling_lease
        WHERE job_id = ANY(%s) AND state IN ('launching', 'running', 'stopping')
        """,
        [[item.job for item in write.plan.decision.grants]],
    )
    return {job for (job,) in write.cursor.fetchall()}


def _grantable(write: RoundWrite) -> dict[int, int]:
    """Lock the jobs that still wait, or are moved; return the number of each job's next lease."""
    write.cursor.execute(
        """
        SELECT id, leases_held + 1 FROM scheduling_job
        WHERE id = ANY(%s) AND cancel_asked_at IS NULL AND cardinality(holds) = 0
          -- A job that was held and released since the snapshot arrives in the next round.
          AND coalesce(eligible_at, submitted_at) <= %s
          AND (state = 'pending' OR (state = 'stopping' AND id = ANY(%s)))
        -- NO KEY: the meter inserts lines that refer to these jobs, and need not wait.
        ORDER BY id FOR NO KEY UPDATE
        """,
        [
            [item.job for item in write.plan.decision.grants],
            write.at,
            sorted(_moved(write)),
        ],
    )
    return dict(write.cursor.fetchall())


def _placed(write: RoundWrite, numbers: dict[int, int]) -> list[_New]:
    """Choose slots in the order of the decision; record grants that are superseded."""
    grants, moved = write.plan.decision.grants, _moved(write)
    held = _held(write)
    slots = read_slots(node for item in grants for node, _ in item.placement)
    placed = []
    for item in grants:
        if item.job in write.unfunded_jobs:
            write.supersede("grant", item.job, write.unfunded_jobs[item.job])
            continue
        if item.job not in numbers:
            why = write.spared.get(item.job, SupersededReason.JOB_GONE)
            write.supersede("grant", item.job, why)
            continue
        chosen = slots.take(item.placement)
        if chosen is None:
            write.supersede("grant", item.job, SupersededReason.NODE_GONE)
            continue
        places, free = chosen
        placed.append((item, places, free and item.job not in moved and item.job not in held))
    ids = next_ids("scheduling_lease", len(placed))
    return [
        _New(id_, numbers[item.job], item, places, ready)
        for id_, (item, places, ready) in zip(ids, placed, strict=True)
    ]


_COLUMNS = (
    *("id", "pool_id", "tenant_id", "job_id", "gpu_type_id", "number", "state", "gpus"),
    *("placement", "granted_round", "granted_at", "expires_at", "protected_until", "end_reason"),
    *("term", "own", "borrowed", "price"),
)


def _protected_until(write: RoundWrite) -> datetime | None:
    if not write.protected_us:
        return None
    return from_us(write.plan.snapshot.at_us + write.protected_us)


def _row(
    write: RoundWrite, lease: _New, types: dict[str, int], protected_until: datetime | None
) -> tuple[Any, ...]:
    """Return a new lease's columns: it is launched now, or waits until its GPUs are released."""
    snapshot, item = write.plan.snapshot, lease.item
    state = Lease.State.LAUNCHING if lease.ready else Lease.State.WAITING
    return (
        *(lease.id, snapshot.pool, item.tenant, item.job, types[item.gpu_type], lease.number),
        *(state.value, item.own + item.borrowed, canonical_bytes(item.placement).decode()),
        *(snapshot.number, write.at, write.expires_at(item)),
        *(protected_until, ""),
        *(1, item.own, item.borrowed, to_credits(item.price_micro)),
    )
