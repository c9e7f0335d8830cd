"""Leases that an executor stopped listing at the same time; only an operator can end them."""

from datetime import datetime
from hashlib import sha256
from typing import Annotated

from scheduling.models import ExecutorHealth, Lease
from scheduling.selectors.jobs.refs import JobRef
from scheduling.selectors.tenants.dashboard import node_names
from tenants.answers import Answer, Hidden, about


class MissingLease(Answer, frozen=True, rename={"number": "lease", "is_accepted": "accepted"}):
    """A launched lease that its executor no longer lists, and since when (wall time).

    `lease` is its number among the leases of its job.
    """

    COMPONENT = "MissingLeaseRow"

    job: Annotated[JobRef | None, about("null: your role may not see jobs of tenants.")]
    tenant: str
    number: int
    gpus: int
    nodes: tuple[str, ...]
    since: datetime | None
    is_accepted: Annotated[bool, about("An operator accepted its loss: the next round ends it.")]


class FrozenLeases(Answer, frozen=True, rename={"since": "frozen_since", "leases": "missing"}):
    """Leases that vanished at the same time; they end only when an operator accepts their loss.

    They continue if the executor lists them again. `frozen_since` is null and `missing` is empty if
    no leases are frozen.
    """

    COMPONENT = "PoolLosses"

    since: datetime | None = None
    launched: Annotated[
        int, about("Number of launched leases at the last comparison with the executor.")
    ] = 0
    leases: tuple[MissingLease, ...] = ()  # the longest missing lease comes first
    # Identifies this set, so that an operator accepts exactly the leases that were shown.
    seen: Hidden[str] = ""

    @property
    def accepted(self) -> int:
        """The number of these leases whose loss an operator has accepted."""
        return sum(one.is_accepted for one in self.leases)


def frozen_leases(pool_id: int, *, lock: bool = False) -> FrozenLeases | None:
    """Return a pool's frozen leases, or None if no loss is frozen. At most three queries.

    With `lock`, they stay the same until the transaction ends.
    """
    rows = ExecutorHealth.objects.filter(pool=pool_id, frozen_since__isnull=False)
    row = (rows.select_for_update() if lock else rows).first()
    if row is None or row.frozen_since is None:
        return None
    accepted = frozenset(row.accepted)
    leases = _leases(row.missing)
    names = node_names(place[0] for lease in leases.values() for place in lease.placement)
    missing = [
        _missing(leases.get(token), since, names, is_accepted=token in accepted)
        for token, since in sorted(row.missing.items(), key=lambda item: (item[1], item[0]))
    ]
    return FrozenLeases(row.frozen_since, row.launched, tuple(missing), name_of(row))


def name_of(row: ExecutorHealth) -> str:
    """Return a text that identifies the set of missing leases, whether accepted or not."""
    since = row.frozen_since.isoformat() if row.frozen_since else ""
    return sha256("\n".join([since, *sorted(row.missing)]).encode()).hexdigest()[:32]


def _leases(tokens: dict[str, str]) -> dict[str, Lease]:
    """Return the leases that tokens (`installation-job-number`) identify; ignore other tokens."""
    wanted = {}
    for token in tokens:
        _, _, rest = token.partition("-")
        job, _, number = rest.partition("-")
        if job.isdecimal() and number.isdecimal():
            wanted[int(job), int(number)] = token
    rows = Lease.objects.filter(job__in={job for job, _ in wanted}).exclude(state=Lease.State.ENDED)
    return {
        wanted[lease.job_id, lease.number]: lease
        for lease in rows.select_related("job", "tenant")
        if (lease.job_id, lease.number) in wanted
    }


def _missing(
    lease: Lease | None, since: str, names: dict[int, str], *, is_accepted: bool
) -> MissingLease:
    at = datetime.fromisoformat(since) if since else None
    if lease is None:
        return MissingLease(None, "", 0, 0, (), at, is_accepted)
    nodes = sorted(names.get(place[0], "?") for place in lease.placement)
    job = JobRef(lease.job.uid, lease.job.name)
    return MissingLease(
        job, lease.tenant.name, lease.number, lease.gpus, tuple(nodes), at, is_accepted
    )
