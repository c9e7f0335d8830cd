"""`evenshare quota requests`, `request` and `withdraw`: requests of a tenant for another quota."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Mapping
from typing import Any

from evenshare.errors import UsageError

from .api import Transport, part
from .arguments import option, positive
from .ids import find_id
from .instants import read_instant
from .terminal import Terminal, inert, short, when

STATE = option("--state", choices=("open", "approved", "declined", "withdrawn"))
REQUEST = option("quota_request", metavar="ID", help="its id, or the first 8 characters")
WANTED = (
    option("pool", metavar="POOL"),
    option("gpus", metavar="TOTAL", type=positive, help="GPUs of the whole quota that you want"),
    option("--reason", required=True, help="why, for the person who decides"),
    option(
        "--type", dest="gpu_type", metavar="TYPE",
        help="a GPU type (default: the pool's only type)",
    ),
    option("--until", metavar="TIME", help="its end, pool time (default: no end)"),
)  # fmt: skip # rows of what belongs together


def requests(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    asked = {"pool": options.pool, "tenant": options.tenant, "state": options.state}
    rows = list(client.pages("/quota-requests", options.limit, **asked))
    heads = ["ID", "TENANT", "POOL", "TYPE", "QUOTA", "WANTED", "UNTIL", "STATE", "ANSWER"]
    nothing = "no requests for quota"
    return screen.listed(rows, nothing, heads, lambda row: _row(row, screen), "QUOTA WANTED")


def request(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    body: dict[str, Any] = {"pool": options.pool, "gpus": options.gpus, "reason": options.reason}
    if options.until:
        body["until"] = read_instant("--until", options.until).isoformat()
    body["gpu_type"] = options.gpu_type or _only_type(client, options.pool)
    body |= {"tenant": options.tenant} if options.tenant else {}
    # If the response is lost, a retry with the same key makes no second request.
    key = options.idempotency_key or str(uuid.uuid4())
    asked = client.post("/quota-requests", body, key=key)
    if screen.answered(asked):
        return 0
    screen.line(inert(asked["id"]))
    screen.note(f"{_change(asked)}: an operator decides")
    return 0


def withdraw(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    known = find_id(client, options.quota_request, "/quota-requests", "quota request")
    row = client.post(f"/quota-requests/{part(known)}/withdraw", repeatable=True)
    if not screen.answered(row):
        screen.line(f"{inert(row['state'])}: {_change(row)}")
    return 0


def _only_type(client: Transport, pool: str) -> str:
    """Return a pool's only GPU type. Raises UsageError if it has several, or none."""
    types = [str(row["gpu_type"]) for row in client.get(f"/pools/{part(pool)}")["types"]]
    if len(types) != 1:
        raise UsageError(f"--type: {' or '.join(types) or 'the pool has no GPUs'}")
    return types[0]


def _row(row: Mapping[str, Any], screen: Terminal) -> list[str]:
    return [
        screen.id(row),
        *(inert(row[name]) for name in ("tenant", "pool", "gpu_type", "quota")),
        inert(_wanted(row)),
        when(row.get("until")) or "-",
        inert(row["state"]),
        short(inert(row.get("answer") or "-"), 40),
    ]


def _wanted(row: Mapping[str, Any]) -> object:
    """Return the approved number of GPUs, or the requested one before a decision."""
    approved = row.get("approved_gpus")
    return row["gpus"] if approved is None else approved


def _change(row: Mapping[str, Any]) -> str:
    gpus = f"{inert(row['quota'])} to {inert(row['gpus'])} {inert(row['gpu_type'])}"
    return f"quota of {inert(row['tenant'])} in {inert(row['pool'])} from {gpus} GPUs"
