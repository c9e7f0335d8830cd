"""The demo's fifth pool, `deadlines`: three teams with deadlines, and one without.

It is small, with four nodes. In one of every three hours of its clock (three minutes for the
reader) demand exceeds capacity (`portal.demo.deadlines_trace`). Some deadlines are then refused,
with the earliest feasible one. In the first such hour a node is under maintenance, so that plans
change.
"""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from evenshare_core.policies.registry import POLICIES
from evenshare_core.units import ONE_MILLI, SECOND_US
from portal.demo.deadlines_trace import HOURS, TEAMS
from portal.demo.names import DEADLINE_POOL
from portal.demo.people import DEMO_PEOPLE
from portal.demo.small_pool import SmallPool, demo_tenants, make_small_pool
from scheduling.models import Pool, Profile, VirtualSpeeds
from scheduling.requests.nodes import WindowRequest
from scheduling.services.nodes import add_window
from tenants.audit import Actor
from tenants.models import Tenant, User

POLICY = "unisched"
BEGIN = datetime(2023, 5, 8, 8, tzinfo=UTC)
POOL = SmallPool(
    name=DEADLINE_POOL,
    policy=POLICY,
    options={},
    gpu_type="h100",
    nodes=4,
    gpus_per_node=8,
    base=Decimal("1.50"),
    begin=BEGIN,
    scale=60,
    round_s=10,
    # Seconds of pool time: as long as one round interval.
    lease_s=600,
    trace="deadlines_12h",
    hours=HOURS,
)
QUOTAS = {team.tenant: team.quota for team in TEAMS}
# The paper uses five minutes.
PROFILING_S = 300
MAINTAINED, SINCE, LENGTH = "h100-04", timedelta(minutes=95), timedelta(minutes=60)


def seed_deadlines() -> bool:
    """Make the pool `deadlines`, shared by four tenants of the demo; return whether it was made."""
    tenants = demo_tenants([team.tenant for team in TEAMS])
    if tenants is None or POLICY not in POLICIES or Pool.objects.filter(name=POOL.name).exists():
        return False
    pool = make_small_pool(POOL, tenants, QUOTAS)
    Pool.objects.filter(pk=pool.pk).update(profiling_s=PROFILING_S)
    for team in TEAMS:
        _make_job_type(pool, tenants[team.tenant], team.profile)
    _maintain(pool)
    return True


def _make_job_type(pool: Pool, tenant: Tenant, name: str) -> None:
    """Make one job type for all jobs of a team, so that rounds learn their estimates' error."""
    speeds = {POOL.gpu_type: ONE_MILLI}
    profile = Profile.objects.create(
        tenant=tenant, pool=pool, name=name, speedups=speeds, declared=speeds
    )
    VirtualSpeeds.objects.create(
        profile=profile, tenant=tenant, speedups=speeds, iteration_us=SECOND_US
    )


def _maintain(pool: Pool) -> None:
    """Plan maintenance of a node as the demo's operator, if that user exists."""
    operator = User.objects.filter(username=DEMO_PEOPLE["operator"], is_active=True).first()
    if operator is None:
        return
    request = WindowRequest(
        pool=pool.name,
        nodes=(MAINTAINED,),
        starts_at=BEGIN + SINCE,
        ends_at=BEGIN + SINCE + LENGTH,
        reason="New firmware",
    )
    add_window(actor=Actor(operator), pool=pool, request=request, now=BEGIN)
