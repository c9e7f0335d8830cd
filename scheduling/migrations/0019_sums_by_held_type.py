"""GPU-time received counts on the GPU type that was held, not on the one that the job claimed.

Sums of pools with several types are recomputed from their leases. Books are not touched: they were
kept by lease terms, with the type of each, from the beginning.
"""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from evenshare_core.domain.snapshot import Service
from evenshare_core.domain.values import canonical_bytes, decode
from scheduling.engine.sums_of_leases import PastHold, sums_of_leases

_HOLDS = """
SELECT l.tenant_id, l.job_id, t.name, l.gpus,
       (extract(epoch FROM l.started_at) * 1000000)::bigint,
       (extract(epoch FROM l.ended_at) * 1000000)::bigint
FROM scheduling_lease l JOIN scheduling_gputype t ON t.id = l.gpu_type_id
WHERE l.pool_id = %s AND l.started_at IS NOT NULL
ORDER BY l.job_id, l.number
"""


def tell_sums_anew(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Correct the sums of each pool whose leases were of several GPU types."""
    owner = schema_editor.connection.alias  # whom row security does not hold
    state_model = apps.get_model("scheduling", "PoolState")  # type: ignore[misc]  # gone: 0034
    states = state_model.objects.using(owner)
    lease_model = apps.get_model("scheduling", "Lease")
    for state in states.order_by("pool_id"):
        leases = lease_model.objects.using(owner).filter(pool_id=state.pool_id)
        if leases.values("gpu_type_id").distinct().count() < 2:
            continue
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(_HOLDS, [state.pool_id])
            holds = [PastHold(*row) for row in cursor.fetchall()]
        service = decode(bytes(state.service), Service)
        state.service = canonical_bytes(sums_of_leases(service, holds))
        state.save(using=owner, update_fields=["service"])


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0018_preemptions")]

    operations = [migrations.RunPython(tell_sums_anew, migrations.RunPython.noop)]
