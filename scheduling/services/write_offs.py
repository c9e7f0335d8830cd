"""Write-off: an operator ends a lease whose process the engine does not end."""

from uuid import UUID

from django.conf import settings
from django.utils.translation import gettext as _

from scheduling.engine.clock import read_clock
from scheduling.engine.executors.base import lease_token
from scheduling.models import ExecutorHealth, Intent, Lease, Pool
from scheduling.requests.leases import EndLeaseRequest, Processes
from scheduling.selectors.operate.overdue import overdue_from
from scheduling.selectors.tenants.dashboard import node_names
from scheduling.services.nodes import drain_node
from tenants.audit import Actor, write_audit
from tenants.input.errors import CONFLICT, invalid
from tenants.language import gettext_noop
from tenants.operator_transaction import operation

NO_SUCH_LEASE = gettext_noop("This pool has no such lease: check the list of its overdue leases.")
ENDED = gettext_noop("It has already ended ({reason}).")
HOLDS_NOTHING = gettext_noop("It waits for its GPUs and holds none: cancel the job instead.")
IS_TO_RUN = gettext_noop(
    "It was not asked to end: cancel the job, or drain its nodes and wait for its expiry. If it"
    " has not ended {notice} s later, end it here."
)
NOT_YET = gettext_noop("Its engine may end it until {until} UTC, pool time: wait until then.")


def end_lease(
    *, actor: Actor, pool: Pool, job: UUID, number: int, request: EndLeaseRequest
) -> bool:
    """Have the next round end an overdue lease; return False if that was requested before.

    The lease then ends at the time when its stop was due, for the reason of that stop. A process
    that still runs is stopped when it is listed again. If it is unknown whether the process ended,
    the lease's nodes are drained. A repeated call changes nothing.

    Raises:
        InvalidInputError: `lease` is not a lease of the pool, or not overdue.
    """
    with operation(actor):
        leases = Lease.objects.filter(pool=pool, job__uid=job, number=number)
        lease = leases.select_related("job").first()
        if lease is None:
            raise invalid("lease", _(NO_SUCH_LEASE))
        ExecutorHealth.objects.get_or_create(pool=pool)
        row = ExecutorHealth.objects.select_for_update().get(pool=pool)
        token = lease_token(lease.job_id, number, settings.INSTALLATION)
        if token in row.written_off:
            return False
        _check_overdue(pool, lease)
        row.written_off = sorted([*row.written_off, token])
        row.save(update_fields=["written_off"])
        names = node_names(place[0] for place in lease.placement)
        nodes = sorted(set(names.values()))
        write_audit(
            actor,
            "lease.written_off",
            f"pool {pool.name}",
            after={
                "job": str(job),
                "lease": number,
                "token": token,
                "gpus": lease.gpus,
                "nodes": nodes,
                "processes": request.processes,
            },
            reason=request.reason,
        )
        if request.processes == Processes.UNKNOWN:
            for node in nodes:
                drain_node(actor=actor, pool=pool, name=node, reason=request.reason)
    return True


def _check_overdue(pool: Pool, lease: Lease) -> None:
    if lease.state == Lease.State.ENDED:
        raise invalid("lease", _(ENDED).format(reason=lease.end_reason), code=CONFLICT)
    if lease.state == Lease.State.WAITING:
        raise invalid("lease", _(HOLDS_NOTHING), code=CONFLICT)
    stops = Intent.objects.filter(lease=lease, kind=Intent.Kind.STOP)
    stop = stops.select_related("pool").order_by("-id").first()
    if lease.state != Lease.State.STOPPING or stop is None:
        raise invalid("lease", _(IS_TO_RUN).format(notice=pool.grace_s), code=CONFLICT)
    now = read_clock(pool.pk)
    until = overdue_from(stop, now.scale)
    if now.pool_at < until:
        raise invalid("lease", _(NOT_YET).format(until=f"{until:%Y-%m-%d %H:%M:%S}"), code=CONFLICT)
