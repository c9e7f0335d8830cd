"""Links to job submission: the viewer's permissions, and the command that submits a job."""

import shlex
from collections.abc import Mapping
from typing import Any

from scheduling.requests.sweep_points import joined_values
from scheduling.requests.sweeps import SweepRequest
from tenants.input.requests import RequestField, Shape, request_fields
from tenants.models import Tenant
from tenants.permissions import Action, may_in_tenant
from tenants.selectors.access import Access

EXAMPLE = ["python", "examples/train.py"]


def submit_links(who: Access, tenant: Tenant, pool: str = "") -> dict[str, Any]:
    """Return the viewer's permissions on jobs of a tenant, and the command of a first job."""
    first = {"tenant": tenant.slug, "pool": pool, "gpus": 1, "command": EXAMPLE}
    return {
        "may_submit": may_in_tenant(who, Action.SUBMIT, tenant.pk),
        "may_cancel": may_in_tenant(who, Action.CANCEL, tenant.pk),
        "first_command": submit_command(first) if pool else "",
    }


def submit_command(spec: Mapping[str, Any]) -> str:
    """Return the command line that submits a specification."""
    fields = request_fields(SweepRequest)
    arguments = ["evenshare", "job", "submit"]
    for name in ("tenant", *(name for name in fields if name != "tenant")):
        arguments += _option_arguments(fields[name], spec.get(name))
    for name, field in fields.items():
        value = spec.get(name)
        if field.option == "--" and value and isinstance(value, list | tuple):
            arguments += ["--", *map(str, value)]
    return shlex.join(arguments)


def _option_arguments(field: RequestField, value: object) -> list[str]:
    if value in (None, "") or field.option in ("", "--"):
        return []
    if field.shape == Shape.TEXTS:
        values = value if isinstance(value, list | tuple) else ()
        return [word for one in values for word in (field.option, str(one))]
    if field.shape == Shape.PAIRS:
        pairs = value.items() if isinstance(value, Mapping) else ()
        return [word for key, one in pairs for word in (field.option, f"{key}={one}")]
    if field.shape == Shape.LISTS:
        lists = value.items() if isinstance(value, Mapping) else ()
        return [
            word for key, row in lists for word in (field.option, f"{key}={joined_values(row)}")
        ]
    return [field.option, str(value)]
