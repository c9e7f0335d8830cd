"""Locks job types for callers that create jobs of these types."""

from collections.abc import Iterable

from scheduling.models import Profile

_HELD = """
SELECT id, tenant_id, name, speedups FROM scheduling_profile
WHERE pool_id = %s AND tenant_id = ANY(%s) AND name = ANY(%s)
ORDER BY id FOR SHARE
"""


def lock_profiles(
    pool_id: int, wanted: Iterable[tuple[int, str]]
) -> dict[tuple[int, str], Profile]:
    """Return profiles by (tenant, name), locked until the transaction ends.

    Without the lock, `scheduling.services.profiles` could remove a GPU type from a profile while a
    job that accepts this type is created. No round could then place the job.
    """
    pairs = set(wanted)
    if not pairs:
        return {}
    tenants, names = zip(*sorted(pairs), strict=True)
    rows = Profile.objects.raw(_HELD, [pool_id, list(tenants), list(names)])
    return {(row.tenant_id, row.name): row for row in rows if (row.tenant_id, row.name) in pairs}
