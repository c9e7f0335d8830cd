"""Links to job submission: the viewer's permissions, and the command that submits a job."""

import shlex
from collections.abc import Mapping
from typing import Any

from scheduling.requests.sweep_points import joined_row, joined_values
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
    if field.shape == Shape.FLAG:
        return [field.option] if value is True else []
    return [word for one in _option_values(field.shape, value) for word in (field.option, one)]


def _option_values(shape: Shape, value: object) -> list[str]:
    """Return the texts of a value, one for each use of its option."""
    items = value.items() if isinstance(value, Mapping) else ()
    listed = value if isinstance(value, list | tuple) else ()
    match shape:
        case Shape.TEXTS:
            return [str(one) for one in listed]
        case Shape.ROWS:
            return [joined_row(row) if isinstance(row, Mapping) else str(row) for row in listed]
        case Shape.PAIRS:
            return [f"{key}={one}" for key, one in items]
        case Shape.LISTS:
            return [f"{key}={joined_values(row)}" for key, row in items]
    return [str(value)]
