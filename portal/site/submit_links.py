"""How pages lead to a submission: what the viewer may do, and the command that submits a job."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from tenants.models import Tenant
from tenants.permissions import Action, may_in_tenant
from tenants.selectors.access import Access

EXAMPLE = ["python", "examples/train.py"]


def submit_links(who: Access, tenant: Tenant, pool: str = "") -> dict[str, Any]:
    """Return what the viewer may do with jobs of a tenant, and the command of a first one."""
    first = {"tenant": tenant.slug, "pool": pool, "gpus": 1, "command": EXAMPLE}
    return {
        "may_submit": may_in_tenant(who, Action.SUBMIT, tenant.pk),
        "may_cancel": may_in_tenant(who, Action.CANCEL, tenant.pk),
        "first_command": submit_command(first) if pool else "",
    }


def submit_command(spec: Mapping[str, Any]) -> str:
    """Return the command line that submits a specification."""
    words = ["evenshare", "job", "submit"]
    for option, name in (
        *(("--tenant", "tenant"), ("--pool", "pool"), ("--gpus", "gpus"), ("--name", "name")),
        *(("--profile", "profile"), ("--max-price", "max_price"), ("--weight", "weight")),
    ):
        if spec.get(name) not in (None, ""):
            words += [option, str(spec[name])]
    types, environment, command = (spec.get(n) for n in ("gpu_types", "environment", "command"))
    for value in types if isinstance(types, list) else ():
        words += ["--gpu-type", str(value)]
    for key, value in environment.items() if isinstance(environment, Mapping) else ():
        words += ["--env", f"{key}={value}"]
    if command and isinstance(command, list):
        words += ["--", *map(str, command)]
    return shlex.join(words)
