"""Test every writer of a lease on every state in which it may find the lease.

Another writer may change a lease between a writer's read and its write: a round that paused, a
cancellation, a report. A table has the result for each state. The test fails if a state is new, or
if the table lacks a pair of writer and state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from evenshare_core.domain.decision import Decision, End
from evenshare_core.domain.instants import to_us
from evenshare_core.domain.reasons import EndReason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import decide_round
from scheduling.engine import rounds as engine
from scheduling.engine.dispatch import dispatch
from scheduling.engine.executors.base import Report, ReportState, lease_token
from scheduling.engine.executors.virtual import VirtualExecutor
from scheduling.engine.fence import take_fence
from scheduling.engine.observe import observe
from scheduling.engine.revoke import revoke_cancelled
from scheduling.models import Intent, Job, Lease, LeaseEvent, LeaseSlot, LeaseTerm, Round
from tenants.models import Budget
from tenants.scopes import site_scope
from tests.factories import Cluster, cluster

pytestmark = pytest.mark.usefixtures("committed_db")

LEASE_S = 20


class World(NamedTuple):
    """A job with one lease that has reached its expiry, in a state that the test chose."""

    lab: Cluster
    job: Job
    lease: Lease


Writer = Callable[[World, str], None]


def write_state(lease: Lease, state: str) -> None:
    """Put the lease into this state, as another writer would."""
    begun = state in ("running", "stopping", "ended")
    Lease.objects.filter(pk=lease.pk).update(
        state=state,
        started_at=lease.granted_at if begun else None,
        ended_at=lease.expires_at if state == "ended" else None,
        end_reason="not_renewed" if state in ("stopping", "ended") else "",
    )
    LeaseSlot.objects.filter(lease=lease).update(
        holding=state in ("launching", "running", "stopping"), planned=state == "waiting"
    )
    if state == "waiting":  # the launch intent is written when the GPUs are released
        Intent.objects.filter(lease=lease).delete()
    job = {"stopping": "stopping", "ended": "pending"}.get(state, "running")
    Job.objects.filter(pk=lease.job_id).update(state=job)


def fence_of(world: World) -> int:
    token = take_fence(world.lab.pool.pk, holder="test")
    assert token is not None
    return token


def decided(change: Callable[[World, Decision], Decision]) -> Writer:
    """Return a writer: a round whose decision was made before the lease got its state."""

    def write(world: World, state: str) -> None:
        def decide(snapshot: Snapshot) -> Decision:
            decision = change(world, decide_round(snapshot))
            with site_scope():
                write_state(world.lease, state)
            return decision

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "decide_round", decide)
            patch.setattr(engine, "reconcile", lambda *_, **__: 0)
            patch.setattr(engine, "_dispatch", lambda *_: None)
            world.lab.round(after_s=LEASE_S)

    return write


def renewal(_: World, decision: Decision) -> Decision:
    assert len(decision.renewals) == 1, "its lease is due, and nobody else wants the GPUs"
    return decision


def end(world: World, decision: Decision) -> Decision:
    lease = world.lease
    taken = End(lease.pk, lease.job_id, lease.tenant_id, EndReason.NOT_RENEWED)
    return replace(decision, renewals=(), ends=(taken,))


def reported(state: ReportState) -> Writer:
    def write(world: World, now: str) -> None:
        write_state(world.lease, now)
        world.lab.at = world.lease.expires_at
        at_us = to_us(world.lab.at)
        begun_us = to_us(world.lease.granted_at)
        token = lease_token(world.job.pk, world.lease.number, "es")
        over = state in (ReportState.FINISHED, ReportState.STOPPED)
        report = Report(
            token, state, begun_us, at_us if over else None,
            0 if state is ReportState.FINISHED else None,
        )  # fmt: skip
        observe(world.lab.pool.pk, fence_of(world), [report], installation="es", at=world.lab.at)

    return write


def activation(world: World, state: str) -> None:
    write_state(world.lease, state)
    world.lab.at = world.lease.expires_at
    observe(world.lab.pool.pk, fence_of(world), [], installation="es", at=world.lab.at)


def cancellation(world: World, state: str) -> None:
    write_state(world.lease, state)
    world.lab.at = world.lease.expires_at
    Job.objects.filter(pk=world.job.pk).update(cancel_asked_at=world.lab.at)
    revoke_cancelled(world.lab.pool.pk, fence_of(world), at=world.lab.at)


def launch_intent(world: World, state: str) -> None:
    """Deliver a launch intent that was written before the lease got its state."""
    write_state(world.lease, state)
    world.lab.at = world.lease.expires_at
    Intent.objects.filter(lease=world.lease).update(state=Intent.State.OPEN)
    dispatch(world.lab.pool, VirtualExecutor(), fence_of(world), installation="es", at=world.lab.at)
    assert not Intent.objects.filter(lease=world.lease, state=Intent.State.OPEN).exists()


WRITERS: dict[str, Writer] = {
    "renewal": decided(renewal),
    "end": decided(end),
    "cancellation": cancellation,
    "activation": activation,
    "launch intent": launch_intent,
    "report accepted": reported(ReportState.ACCEPTED),
    "report running": reported(ReportState.RUNNING),
    "report finished": reported(ReportState.FINISHED),
    "report stopped": reported(ReportState.STOPPED),
}
SAME = "as it was"  # the lease's row, terms and events after a write.
# A state and the events that lead to it. The number of terms shows whether the lease was renewed.
TABLE = {
    "renewal": {
        "waiting": "renewed", "launching": "renewed", "running": "renewed",
        "stopping": SAME, "ended": SAME,
    },
    "end": {
        "waiting": "ended not_renewed", "launching": "stopping not_renewed",
        "running": "stopping not_renewed", "stopping": SAME, "ended": SAME,
    },
    "cancellation": {
        "waiting": "ended cancelled", "launching": "stopping cancelled",
        "running": "stopping cancelled", "stopping": SAME, "ended": SAME,
    },
    "activation": {
        "waiting": "launching", "launching": SAME, "running": SAME, "stopping": SAME,
        "ended": SAME,
    },
    "launch intent": {
        "waiting": SAME, "launching": "running", "running": SAME, "stopping": SAME,
        "ended": SAME,
    },
    "report accepted": dict.fromkeys(Lease.State.values, SAME) | {"waiting": "launching"},
    "report running": dict.fromkeys(Lease.State.values, SAME)
    | {"waiting": "launching", "launching": "running"},
    "report finished": {
        "waiting": "launching", "launching": "ended finished", "running": "ended finished",
        "stopping": "ended finished", "ended": SAME,
    },
    "report stopped": {
        "waiting": "launching", "launching": "ended lost", "running": "ended lost",
        "stopping": "ended not_renewed", "ended": SAME,
    },
}  # fmt: skip


def test_table_covers_every_writer_and_state() -> None:
    assert set(TABLE) == set(WRITERS)
    for writer, row in TABLE.items():
        assert set(row) == set(Lease.State.values), writer


@pytest.mark.parametrize("state", Lease.State.values)
@pytest.mark.parametrize("writer", WRITERS)
def test_writer_changes_lease_as_its_state_allows(writer: str, state: str) -> None:
    lab = cluster({"a": 8}, lease_s=LEASE_S, policy="ltgf")
    job = lab.submit("a", 4, 1000)
    lab.round()
    world = World(lab, job, Lease.objects.get(job=job))
    write_state(world.lease, state)
    before = rows(world)
    write_state(world.lease, "running")
    WRITERS[writer](world, state)
    after = rows(world)
    lease = Lease.objects.get(pk=world.lease.pk)
    expected = TABLE[writer][state]
    if expected == SAME:
        assert after == before
    elif expected == "renewed":
        assert (lease.state, lease.term, len(after["terms"])) == (state, 2, 2)
        assert lease.expires_at > world.lease.expires_at
    else:
        said = f"{lease.state} {lease.end_reason}" if lease.end_reason else lease.state
        assert said == expected
        assert len(after["terms"]) == 1
    superseded = [one["item"] for one in Round.objects.latest("number").superseded]
    unchanged = expected == SAME and writer in ("renewal", "end")
    assert superseded == ([writer] if unchanged else [])
    holding = LeaseSlot.objects.filter(lease=lease, holding=True).count()
    assert holding == (4 if lease.state in ("launching", "running", "stopping") else 0)


def rows(world: World) -> dict[str, Any]:
    """Return all rows of the lease, and its tenant's reservation."""
    lease = world.lease.pk
    return {
        "lease": Lease.objects.values().get(pk=lease),
        "terms": list(LeaseTerm.objects.filter(lease=lease).order_by("number").values()),
        "events": list(LeaseEvent.objects.filter(lease_id=lease).order_by("number").values()),
        "reserved": Budget.objects.get(tenant=world.job.tenant_id).reserved,
    }
