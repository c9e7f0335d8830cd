"""Compares a pool with its cluster: running jobs without a lease, and pools that share nodes."""

from collections.abc import Iterator

from django.conf import settings

from evenshare_core.domain.plurals import plural
from scheduling.engine.executors.base import ExecutorError, lease_token, token_job
from scheduling.engine.executors.local_files import jobs_root
from scheduling.engine.executors.slurm.commands import Slurm, SlurmJob, is_over
from scheduling.engine.executors.slurm.findings import LISTED, ClusterFinding, Level, list_some
from scheduling.engine.executors.slurm.nodes import read_cluster, read_nodes
from scheduling.engine.executors.slurm.options import read_options
from scheduling.engine.executors.slurm.users import submitted_as
from scheduling.models import Lease, Node, Pool
from tenants.scopes import site_scope

RUN_ON, SHARED = "jobs that run on", "nodes of other pools"


def check_pool(pool: Pool) -> Iterator[ClusterFinding]:
    """Check a pool for problems that only the portal can find; the cluster must answer."""
    try:
        slurm = Slurm(read_options(pool.executor_options, pool.name))
        if slurm.options.users:
            yield from _without_users(pool)
        yield _run_on(slurm)
        yield from _shared(slurm, pool)
    except ExecutorError as error:
        yield ClusterFinding(Level.WARNING, f"pool {pool.name}", f"not checked: {error}")


def _without_users(pool: Pool) -> Iterator[ClusterFinding]:
    """Check whether jobs of other pools run as the portal's user, and so can change all files."""
    with site_scope():
        others = Pool.objects.filter(executor__in=("local", pool.executor), clock__paused=False)
        rows = list(others.exclude(pk=pool.pk).order_by("name"))
    names = [other.name for other in rows if not other.executor_options.get("users")]
    if names:
        yield ClusterFinding(
            Level.ERROR,
            "users of other pools",
            f"jobs of {list_some(names)} run as the portal's user, who can read and change the"
            f" jobs of all tenants. Set `users` for these pools too, pause them, or run them with"
            f" another portal",
        )


def _run_on(slurm: Slurm) -> ClusterFinding:
    """Check whether Slurm runs jobs of leases that have ended, or that the portal does not know.

    Completing jobs are left to Slurm: their leases may have just ended.
    """
    going = {
        token: job
        for token, job in slurm.queue(submitted_as(jobs_root())).items()
        if token.startswith(f"{settings.INSTALLATION}-")
        and not is_over(job.state)
        and job.state != "COMPLETING"
    }
    # Query the leases after Slurm's jobs, because a lease exists before its job.
    live = _live_tokens(list(going))
    left = {token: job for token, job in going.items() if token not in live}
    if not left:
        return ClusterFinding(Level.OK, RUN_ON, "none without a lease")
    return ClusterFinding(Level.WARNING, RUN_ON, _run_on_text(left))


def _run_on_text(left: dict[str, SlurmJob]) -> str:
    listed = list_some([f"{job.job_id} ({token})" for token, job in left.items()])
    ids = " ".join(str(job.job_id) for job in [*left.values()][:LISTED])
    return (
        f"{plural(len(left), 'job')} of leases that have ended or are unknown to this portal,"
        f" on GPUs that it counts as free: {listed}. If a second check lists them again: scancel"
        f" {ids}"
    )


def _live_tokens(tokens: list[str]) -> set[str]:
    leases = Lease.objects.filter(job_id__in={token_job(token) for token in tokens})
    with site_scope():
        rows = leases.exclude(state=Lease.State.ENDED).values_list("job_id", "number")
        return {lease_token(job, number, settings.INSTALLATION) for job, number in rows}


def _shared(slurm: Slurm, pool: Pool) -> list[ClusterFinding]:
    """Check whether other pools share nodes with this one and would undo its drains."""
    with site_scope():
        others = Pool.objects.filter(executor=pool.executor).exclude(pk=pool.pk)
        rows = list(others.select_related("clock").order_by("name"))
    own = _names(slurm, pool) if rows else set()
    cluster = read_cluster(slurm) if rows else ""
    findings = []
    for other in rows:
        try:
            theirs = Slurm(read_options(other.executor_options, other.name))
            shared = own & _names(theirs, other) if read_cluster(theirs) == cluster else set()
        except ExecutorError as error:
            text = f"it is unknown whether the pool {other.name} shares them: {error}"
            findings.append(ClusterFinding(Level.WARNING, SHARED, text))
            continue
        if shared:
            # A paused pool reads no node states until it is resumed.
            level = Level.WARNING if other.clock.paused else Level.ERROR
            findings.append(ClusterFinding(level, SHARED, _shared_text(pool, other, shared)))
    return findings or [ClusterFinding(Level.OK, SHARED, "no node of this pool")]


def _shared_text(pool: Pool, other: Pool, shared: set[str]) -> str:
    return (
        f"{list_some(sorted(shared))}: the pools {pool.name} and {other.name} would both count"
        f" their GPUs, and undo each other's drains; give each pool a partition with its own nodes"
    )


def _names(slurm: Slurm, pool: Pool) -> set[str]:
    """Return the nodes of a pool, and those of its partition, which may be added to the pool."""
    with site_scope():
        rows = set(Node.objects.filter(pool=pool).values_list("name", flat=True))
    return rows | {node.name for node in read_nodes(slurm)}
