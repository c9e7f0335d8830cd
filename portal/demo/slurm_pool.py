"""The demo's pool `slurm`, of `make run-slurm`: real jobs on five nodes of a real Slurm cluster.

Its policy keeps separate GPU-time sums for the three GPU types, and reserves nodes for a gang
larger than a node. A lease ends only at its expiry, so that a newcomer sees which job made way for
which. While the page is viewed, the demo's teams submit a job now and then. The programs count
seconds (examples/pretend.py) and cost nothing.
"""

import shlex
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from django.conf import settings

from portal.demo.machine_pool import make_machine_pool
from portal.demo.names import SLURM_POOL
from portal.demo.slurm.config import CORES, MEMORY_MB, NODES, PARTITION
from scheduling.engine.clock import read_clock
from scheduling.models import GpuType, Job, Node, Pool, PoolClock, PriceSetting
from scheduling.services.submit import submit_job
from tenants.models import Quota, Tenant, User
from tenants.scopes import site_scope

NAME = SLURM_POOL
# `Job.source` of the demo's own jobs.
SOURCE = "demo"
SUBMIT_EVERY, WATCHED_FOR = timedelta(seconds=12), timedelta(minutes=10)
# Limits the load of sleeping processes on the machine.
MOST_ACTIVE = 8


class SlurmGpuType(NamedTuple):
    """A GPU type of the cluster: `rank` as in the pool `mixed`, base price, and GPUs by tenant."""

    name: str
    rank: int
    base: Decimal
    quotas: dict[str, int]


class DemoJob(NamedTuple):
    """A job that a tenant submits repeatedly."""

    tenant: str
    name: str
    gpus: int
    gpu_types: tuple[str, ...]
    seconds: int


ROSA, MARA, THIRD = "vc-7f04ca", "vc-6214e9", "vc-ee9e8c"
GPU_TYPES = (
    SlurmGpuType("k80", 0, Decimal("0.25"), {ROSA: 1, MARA: 1, THIRD: 2}),
    SlurmGpuType("v100", 2, Decimal("1.25"), {ROSA: 2, MARA: 4, THIRD: 2}),
    SlurmGpuType("a100", 3, Decimal("2.50"), {ROSA: 4, MARA: 2, THIRD: 2}),
)
TENANTS = (ROSA, MARA, THIRD)
# The jobs are submitted in this order, repeatedly. Together they need fewer GPUs than the cluster
# has, but sometimes more than are free. The gangs of 8 are larger than a node.
JOBS = (
    DemoJob(MARA, "finetune", 4, ("a100",), 45),
    DemoJob(THIRD, "evaluate", 1, ("k80",), 40),
    DemoJob(ROSA, "embed", 2, ("a100",), 40),
    DemoJob(MARA, "distill", 4, ("v100",), 45),
    DemoJob(ROSA, "pretrain", 8, ("a100",), 40),
    DemoJob(THIRD, "sweep", 2, ("v100", "k80"), 40),
    DemoJob(ROSA, "ablation", 2, ("v100",), 45),
    DemoJob(THIRD, "scaleup", 8, ("v100",), 30),
    DemoJob(MARA, "evaluate", 1, (), 40),
    DemoJob(THIRD, "index", 2, ("k80",), 45),
)


def seed_slurm(conf: str) -> bool:
    """Make the pool, or update its path to the cluster; return whether it was made.

    Do nothing without a cluster (`make run`) or without the demo's tenants.
    """
    tenants = {row.slug: row for row in Tenant.objects.filter(slug__in=TENANTS)}
    if not conf or len(tenants) != len(TENANTS):
        return False
    options = {"conf": conf, "partition": PARTITION}
    pool = Pool.objects.filter(name=NAME).first()
    if pool is not None:
        merged = {**pool.executor_options, **options}
        if pool.executor_options != merged:
            pool.executor_options = merged
            pool.save(update_fields=["executor_options"])
        return False
    pool, begin = make_machine_pool(NAME, "slurm", tenants.values(), options)
    for demo_type in GPU_TYPES:
        _gpus(pool, demo_type, tenants, begin)
    return True


def _gpus(pool: Pool, demo_type: SlurmGpuType, tenants: dict[str, Tenant], begin: datetime) -> None:
    gpu_type, _ = GpuType.objects.get_or_create(name=demo_type.name)
    # Another pool may have created this type without its rank.
    if gpu_type.rank < demo_type.rank:
        gpu_type.rank = demo_type.rank
        gpu_type.save(update_fields=["rank"])
    PriceSetting.objects.create(pool=pool, gpu_type=gpu_type, base=demo_type.base)
    # Create nodes as Slurm reports them, so that `sync_nodes` finds nothing to change.
    has = {"cpus": CORES, "memory_mb": MEMORY_MB}
    Node.objects.bulk_create(
        Node(pool=pool, name=node.name, gpu_type=gpu_type, gpus=node.gpus, **has)
        for node in NODES
        if node.gpu_type == demo_type.name
    )
    Quota.objects.bulk_create(
        Quota(tenant=tenants[slug], pool=pool, gpu_type=gpu_type, gpus=gpus, valid_from=begin)
        for slug, gpus in demo_type.quotas.items()
    )


def first_steps(conf: str) -> list[str]:
    """Return lines of first steps with the cluster at `conf`; empty without a cluster.

    `{url}` is a placeholder for the portal's address.
    """
    if not conf:
        return []
    wanted = f"--pool {NAME} --gpus 8 --gpu-type a100"
    return [
        "a job on the Slurm cluster, on two of its nodes, and its state in Slurm:",
        f".venv/bin/evenshare job submit {wanted} -- python examples/pretend.py",
        f"SLURM_CONF={shlex.quote(conf)} squeue",
        f"its pool: {{url}}/pools/{NAME}/",
    ]


def submit_when_due() -> bool:
    """Submit the teams' next job, if it is due; return whether one was submitted.

    Only while the cluster runs and the pool's page was viewed recently.
    """
    if not settings.DEMO_SLURM_CONF:
        return False
    with site_scope():
        clock = PoolClock.objects.filter(pool__name=NAME).first()
        if clock is None:
            return False
        now = read_clock(clock.pool_id)
        ours = Job.objects.filter(pool_id=clock.pool_id, source=SOURCE)
        active = ours.filter(state__in=Job.ACTIVE_STATES).count()
        last = ours.order_by("-id").values_list("submitted_at", flat=True).first()
        if now.wall - clock.viewed_wall > WATCHED_FOR or active >= MOST_ACTIVE:
            return False
        if last is not None and now.pool_at - last < SUBMIT_EVERY:
            return False
        number = ours.count()
        job = JOBS[number % len(JOBS)]
        tenant = Tenant.objects.get(slug=job.tenant)
        people = User.objects.filter(memberships__tenant=tenant, is_active=True)
        user = people.order_by("id").first()
    command = ["python", "examples/pretend.py", "--seconds", str(job.seconds)]
    spec = {
        "pool": NAME,
        "name": f"{job.name}-{number + 1}",
        "gpus": job.gpus,
        "gpu_types": list(job.gpu_types),
        "command": command,
    }
    submit_job(tenant=tenant, user=user, spec=spec, now=read_clock, source=SOURCE)
    return True
