"""`evenshare pool ...` and `evenshare quota`: pools, and what tenants hold in them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from .api import Transport, part
from .terminal import Terminal, inert, short, when


def pool_list(_: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    pools = client.get("/pools")["results"]
    heads = ["POOL", "GPUS", "NODES", "POLICY", "ROUND", "ROUND AT", "CLOCK"]
    return screen.listed(pools, "no pools", heads, _row, "GPUS NODES ROUND")


def _row(pool: Mapping[str, Any]) -> list[str]:
    return [
        *(inert(pool[name]) for name in ("name", "gpus", "nodes", "policy")),
        "-" if pool.get("round") is None else inert(pool["round"]),
        when(pool.get("round_at")) or "-",
        _clock(pool),
    ]


def pool_show(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    pool = client.get(f"/pools/{part(options.pool)}")
    if screen.answered(pool):
        return 0
    promise = pool.get("quota_promise")
    facts = [
        ("pool", inert(pool["name"])),
        ("policy", inert(pool["policy"])),
        ("round", f"every {inert(pool['round_s'])} s, leases of {inert(pool['lease_s'])} s"),
        ("last round", _last(pool)),
        ("clock", f"{when(pool.get('now'))} ({_clock(pool)})"),
        ("quota", inert(promise.get("text") or "") if isinstance(promise, Mapping) else ""),
    ]
    screen.pairs([(name, value) for name, value in facts if value])
    screen.line()
    types = [_counts(row) for row in pool.get("types") or ()]
    heads = ["TYPE", "GPUS", "USED", "OWN", "BORROWED", "IDLE", "BLOCKED"]
    screen.table(heads, types, " ".join(heads[1:]))
    screen.line()
    nodes = [
        [short(inert(node["name"]), 40), inert(row["gpu_type"]), inert(node["gpus"]),
         inert(node["held"]), inert(node["state"])]
        for row in pool.get("types") or ()
        for node in row["nodes"]
    ]  # fmt: skip # rows of what belongs together
    screen.table(["NODE", "TYPE", "GPUS", "HELD", "STATE"], nodes, "GPUS HELD")
    return 0


def quota(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    rows = client.get("/quotas/use", tenant=options.tenant, pool=options.pool)["results"]
    names = ("tenant", "pool", "gpu_type", "gpus", "own", "traded", "idle", "borrowed")
    heads = ["TENANT", "POOL", "TYPE", "QUOTA", "USED", "TRADED", "IDLE", "BORROWED"]

    def cells(row: Mapping[str, Any]) -> list[str]:
        # An older portal sends no `traded`.
        return [inert(row.get(name, "")) for name in names]

    nothing = "no quota, and no GPUs in use"
    return screen.listed(rows, nothing, heads, cells, " ".join(heads[3:]))


def _counts(row: Mapping[str, Any]) -> list[str]:
    names = ("gpu_type", "gpus", "used", "own", "borrowed", "idle", "blocked")
    return [inert(row[name]) for name in names]


def _last(pool: Mapping[str, Any]) -> str:
    """Return the number and the time of a pool's last round; empty before its first."""
    if pool.get("round") is None:
        return ""
    return f"{inert(pool['round'])} at {when(pool.get('round_at'))}"


def _clock(pool: Mapping[str, Any]) -> str:
    if pool.get("paused"):
        return "paused"
    return "real time" if pool.get("scale") == 1 else f"{inert(pool.get('scale'))} times"
