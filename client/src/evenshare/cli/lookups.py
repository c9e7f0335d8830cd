"""`evenshare member list` and `evenshare profile list`: names that other commands take."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from .api import Transport, part
from .ids import only_tenant
from .terminal import Terminal, inert, named, short


def member_list(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    tenant = options.tenant or only_tenant(client)
    members = list(client.pages(f"/tenants/{part(tenant)}/members", None))
    if options.output == "json":
        screen.json(members)
        return 0
    rows = [[inert(one["username"]), inert(one["role"]), inert(one["name"])] for one in members]
    screen.table(["USERNAME", "ROLE", "NAME"], rows)
    return 0


def profile_list(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    path = f"/pools/{part(options.pool)}/profiles"
    profiles = list(client.pages(path, None, tenant=options.tenant))
    if options.output == "json":
        screen.json(profiles)
        return 0
    if not profiles:
        screen.note("no job types")
        return 0
    rows = [
        [
            inert(one["name"]),
            short(named(one["tenant"]), 24),
            _speeds(one["speeds"]),
            inert(one["origin"]),
        ]
        for one in profiles
    ]
    screen.table(["JOB TYPE", "TENANT", "SPEEDS", "ORIGIN"], rows)
    return 0


def _speeds(speeds: Mapping[str, Any]) -> str:
    return " ".join(f"{inert(kind)}={inert(speed)}" for kind, speed in speeds.items())
