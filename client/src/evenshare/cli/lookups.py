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
    names = ("username", "role", "name")
    heads = [name.upper() for name in names]
    return screen.listed(members, "no members", heads, lambda one: [inert(one[k]) for k in names])


def profile_list(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    path = f"/pools/{part(options.pool)}/profiles"
    profiles = list(client.pages(path, None, tenant=options.tenant))
    heads = ["JOB TYPE", "TENANT", "SPEEDS", "ORIGIN"]
    return screen.listed(profiles, "no job types", heads, _profile)


def _profile(one: Mapping[str, Any]) -> list[str]:
    tenant = short(named(one["tenant"]), 24)
    return [inert(one["name"]), tenant, _speeds(one["speeds"]), inert(one["origin"])]


def _speeds(speeds: Mapping[str, Any]) -> str:
    return " ".join(f"{inert(kind)}={inert(speed)}" for kind, speed in speeds.items())
