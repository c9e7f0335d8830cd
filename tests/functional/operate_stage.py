"""Provide a small site with site roles, and every edit of the operator's REST API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from scheduling.engine.clock import wall_now
from scheduling.models import ExecutorHealth, Intent, Lease, MaintenanceWindow, Node
from tenants.tokens import Scope
from tests.factories import BEGIN
from tests.functional.api_stage import ApiStage, api_stage

QUOTA = "operate/quotas/{pool}/aa/v100"
HOUR = timedelta(hours=1)
SOON, LATER = "2099-01-01T00:00:00Z", "2099-01-02T00:00:00Z"


def operate_stage() -> ApiStage:
    """Create the site: an operator, finance, an auditor, and tokens with few scopes."""
    stage = api_stage()
    for name, role in (("otto", "operator"), ("fin", "finance"), ("aud", "auditor")):
        stage.person(name, site_role=role)
    stage.person("max", "aa", "manager")
    stage.secrets["reader"] = stage.token("otto", Scope.READ)
    stage.secrets["writer"] = stage.token("otto", Scope.JOBS_WRITE, Scope.JOBS_READ)
    return stage


def tag(stage: ApiStage, path: str) -> str:
    answer = stage.get(path.format(pool=stage.pool), as_="otto")
    assert answer.status_code == 200, answer.content
    return str(answer["ETag"])


def edit(
    stage: ApiStage, method: str, path: str, body: Any = None, *, seen: str, as_: str = "otto"
) -> Any:
    """Send an edit with the ETag from a GET of `seen`, which is a URL or a quoted ETag."""
    etag = seen if seen.startswith('"') else tag(stage, seen)
    return stage.call(method, path.format(pool=stage.pool), body, as_=as_, **{"If-Match": etag})


def overdue_lease(stage: ApiStage) -> Lease:
    """Return a listed lease that should have ended an hour ago; create it only once."""
    made = Lease.objects.filter(state="stopping").first()
    if made is not None:
        return made
    job, at = stage.job(), stage.cluster.at
    lease = Lease.objects.create(
        pool=stage.cluster.pool, tenant=job.tenant, job=job, number=1, state="stopping",
        gpu_type=stage.cluster.gpu_type, gpus=2, granted_round=1, placement=[], own=2, borrowed=0,
        granted_at=at - 3 * HOUR, started_at=at - 3 * HOUR, expires_at=at - HOUR, price=0,
        end_reason="not_renewed",
    )  # fmt: skip
    Intent.objects.create(
        pool=lease.pool, lease=lease, kind="stop", term=1, at=at - HOUR, state="done"
    )
    return lease


def edits(stage: ApiStage) -> dict[str, tuple[str, str, Any, str]]:
    """Return every edit: method, URL, a valid body, and the source of its ETag."""
    pool = stage.pool
    one, nodes = f"operate/pools/{pool}", f"operate/nodes?pool={pool}"
    windows, quotas = f"operate/maintenance?pool={pool}", f"operate/quotas?pool={pool}"
    window = MaintenanceWindow.objects.first() or MaintenanceWindow.objects.create(
        pool=stage.cluster.pool,
        node=Node.objects.order_by("id")[0],
        starts_at=BEGIN + timedelta(days=30_000),
        ends_at=BEGIN + timedelta(days=30_001),
    )
    plan = {"pool": pool, "nodes": ["n0000"], "starts_at": SOON, "ends_at": LATER}
    # The engine lists none of its former leases, as if it was reinstalled.
    ExecutorHealth.objects.get_or_create(
        pool=stage.cluster.pool,
        defaults={
            "frozen_since": wall_now(),
            "launched": 3,
            "missing": {f"es-{n}-1": wall_now().isoformat() for n in (1, 2, 3)},
        },
    )
    overdue = overdue_lease(stage)
    node = {"pool": pool, "name": "extra", "gpu_type": "a100", "gpus": 8}
    return {
        "change": ("PATCH", one, {"lease_s": 600}, one),
        "pause": ("POST", f"{one}/pause", {}, one),
        "scale": ("POST", f"{one}/scale", {"scale": 1}, one),
        "resume": ("POST", f"{one}/resume", {"reason": "done"}, one),
        "give up": ("POST", f"{one}/losses/accept", {"reason": "new disks"}, f"{one}/losses"),
        "end a lease": (
            "POST", f"{one}/overdue/{overdue.job.uid}/{overdue.number}/end",
            {"processes": "gone", "reason": "node is dead"}, f"{one}/overdue",
        ),
        "quota": ("PUT", f"operate/quotas/{pool}/aa/v100", {"gpus": 4}, quotas),
        "add": ("POST", "operate/nodes", node, nodes),
        "describe": ("PATCH", f"operate/nodes/{pool}/n0001", {"cpus": 64}, nodes),
        "drain": ("POST", f"operate/nodes/{pool}/n0001/drain", {"reason": "fan"}, nodes),
        "up": ("POST", f"operate/nodes/{pool}/n0001/resume", None, nodes),
        "drain again": ("POST", f"operate/nodes/{pool}/n0001/drain", {"reason": "again"}, nodes),
        "remove": ("DELETE", f"operate/nodes/{pool}/n0001", None, nodes),
        "plan": ("POST", "operate/maintenance", plan, windows),
        "call off": ("DELETE", f"operate/maintenance/{pool}/{window.pk}", None, windows),
        "open": (
            "POST", "operate/tenants", {"slug": "cc", "name": "C", "initials": "c"},
            "operate/tenants",
        ),
    }  # fmt: skip
