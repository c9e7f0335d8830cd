"""A pool of the demo whose jobs are real processes, on this machine or on Slurm nodes.

Leases are short, so that a new user sees within a minute how a job yields and resumes.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings

from billing.models import Book
from scheduling.engine.clock import wall_now
from scheduling.models import Pool
from scheduling.services.pool_creation import open_pool
from tenants.models import Tenant
from tenants.services.tenants import create_tenant

POLICY = "ltgf"


def make_machine_pool(
    name: str,
    executor: str,
    tenants: Iterable[Tenant],
    executor_options: Mapping[str, Any] | None = None,
) -> tuple[Pool, datetime]:
    """Make the pool, and a book of its name with accounts of these tenants.

    Return the pool and the start of its pool time. It has neither nodes nor quotas yet.
    """
    Book.objects.get_or_create(
        slug=name, defaults={"currency": f"{name} credit", "clock_domain": Book.ClockDomain.REAL}
    )
    pool = Pool.objects.create(
        name=name,
        executor=executor,
        executor_options=dict(executor_options or {}),
        policy=POLICY,
        book=name,
        round_s=2,
        lease_s=20,
        grace_s=5,
        on_demand=True,
        source_dir=str(settings.BASE_DIR),
    )
    begin = wall_now()
    open_pool(pool, begin, scale=1)
    for tenant in tenants:
        create_tenant(
            slug=tenant.slug,
            name=tenant.name,
            initials=tenant.initials,
            swatch=tenant.swatch,
            book=name,
        )
    return pool, begin
