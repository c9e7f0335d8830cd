"""`evenshare notify`: list, add, remove and test your subscriptions to messages."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from .api import Transport, part
from .ids import find_id, only_tenant
from .terminal import Terminal, inert, named, short

CHANNELS = ("mail", "webhook", "slack", "ntfy")
WHOSE = ("mine", "all")


def notify_list(_: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    rows = list(client.pages("/subscriptions", None))
    heads = ["ID", "STATE", "CHANNEL", "ADDRESS", "TENANT", "JOBS", "KINDS"]
    nothing = "no subscriptions; evenshare notify add makes one"
    return screen.listed(rows, nothing, heads, lambda row: _row(row, screen))


def _row(row: Mapping[str, Any], screen: Terminal) -> list[str]:
    return [
        screen.id(row),
        screen.state(row["state"]),
        inert(row["channel"]),
        short(inert(row["address"]), 32),
        short(named(row.get("tenant")), 16),
        _jobs(row),
        " ".join(inert(kind) for kind in row["kinds"]),
    ]


def notify_add(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    wanted = {
        "tenant": options.tenant or only_tenant(client),
        "channel": options.channel,
        "address": options.address,
        "kinds": options.kind,
        "jobs": options.jobs,
        "pool": options.pool,
        "tag": options.tag,
        "digest_hour": options.digest_hour,
        "zone": options.zone,
    }
    # A second request for the same address changes the subscription, so it may be repeated.
    body = {name: value for name, value in wanted.items() if value not in (None, [])}
    row = client.post("/subscriptions", body, repeatable=True)
    if screen.answered(row):
        return 0
    screen.line(inert(row["id"]))
    screen.note(f"{inert(row['state'])}: {inert(row['channel'])} to {inert(row['address'])}")
    if row.get("secret"):
        screen.note(f"the secret that signs its webhooks: {inert(row['secret'])}")
    return 0


def notify_remove(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    identity = _find(client, options)
    client.call("DELETE", f"/subscriptions/{part(identity)}")
    if not screen.answered({"id": identity}):
        screen.line(f"{inert(identity)}  removed")
    return 0


def notify_test(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    row = client.post(f"/subscriptions/{part(_find(client, options))}/test")
    if not screen.answered(row):
        screen.line(f"{inert(row['id'])}  a test message is on its way to {inert(row['address'])}")
    return 0


def _find(client: Transport, options: argparse.Namespace) -> str:
    return find_id(client, options.subscription, "/subscriptions", "subscription")


def _jobs(row: Mapping[str, Any]) -> str:
    """Return the jobs of which a subscription reports, as text."""
    pool, tag = row.get("pool"), row.get("tag")
    where, marked = f"in {inert(pool)}" if pool else "", f"#{inert(tag)}" if tag else ""
    return " ".join(filter(None, (inert(row["jobs"]), where, marked)))
