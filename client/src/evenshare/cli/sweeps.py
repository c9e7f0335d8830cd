"""`evenshare sweep ...`: list, show, cancel, and submit failed jobs again."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Mapping
from typing import Any

from .api import Transport, part
from .ids import find_id
from .terminal import Terminal, inert, named, short, when

FIELDS = ("array", "matrix", "include", "exclude", "at_once")
STATES = ("held", "pending", "running", "succeeded", "failed", "cancelled")


def sweep_list(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    given = {"pool": options.pool, "tenant": options.tenant}
    sweeps = list(client.pages("/sweeps", options.limit, **given))
    heads = ["ID", "STATE", "JOBS", "STATES", "POOL", "TENANT", "SUBMITTED", "NAME"]
    return screen.listed(sweeps, "no sweeps", heads, lambda row: _row(row, screen), "JOBS")


def _row(sweep: Mapping[str, Any], screen: Terminal) -> list[str]:
    return [
        screen.id(sweep),
        screen.state(sweep["state"]),
        inert(sweep["jobs"]),
        states(sweep),
        short(inert(sweep.get("pool", "")), 16),
        short(named(sweep.get("tenant")), 16),
        when(sweep.get("submitted_at")),
        short(inert(sweep.get("name", "")), 40),
    ]


def sweep_show(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    path = f"/sweeps/{part(find(client, options.id))}"
    sweep = client.get(path)
    jobs = list(client.pages(f"{path}/jobs", None, state=options.state))
    if screen.answered({**sweep, "results": jobs}):
        return 0
    print_sweep(screen, sweep)
    screen.line()
    names = list(dict.fromkeys(name for job in jobs for name in job["parameters"]))
    rows = [
        [
            screen.id(job),
            *(short(inert(job["parameters"].get(name, "")), 24) for name in names),
            screen.state("held" if job.get("held") else job["phase"]),
            "-" if job.get("waited_s") is None else f"{job['waited_s']:.0f} s",
            "-" if job.get("exit_code") is None else inert(job["exit_code"]),
        ]
        for job in jobs
    ]
    screen.table(["ID", *map(inert, names), "STATE", "WAITED", "EXIT"], rows, "WAITED EXIT")
    return 0


def sweep_cancel(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    path = f"/sweeps/{part(find(client, options.id))}/cancel"
    sweep = client.post(path, repeatable=True)
    if not screen.answered(sweep):
        screen.line(f"{inert(sweep['id'])}  {screen.state(sweep['state'])}  {states(sweep)}")
    return 0


def sweep_resubmit(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    key = options.idempotency_key or str(uuid.uuid4())
    sweep = client.post(f"/sweeps/{part(find(client, options.id))}/resubmit", key=key)
    if not screen.answered(sweep):
        screen.line(inert(sweep["id"]))
        screen.note(f"{inert(sweep['jobs'])} jobs submitted again")
    return 0


def find(client: Transport, text: str) -> str:
    return find_id(client, text, "/sweeps", "sweep")


def states(sweep: Mapping[str, Any]) -> str:
    """Return the numbers of a sweep's jobs by state, without zeros."""
    counts = sweep["counts"]
    return ", ".join(f"{inert(counts[name])} {name}" for name in STATES if counts.get(name))


def print_sweep(screen: Terminal, sweep: Mapping[str, Any]) -> None:
    at_once = sweep.get("at_once")
    lines = [
        ("id", inert(sweep["id"])),
        ("name", inert(sweep.get("name", ""))),
        ("state", screen.state(sweep["state"])),
        ("jobs", f"{inert(sweep['jobs'])}: {states(sweep)}"),
        ("at once", "all" if at_once is None else inert(at_once)),
        ("array", inert(sweep.get("array") or "")),
        ("submitted", when(sweep.get("submitted_at"))),
        ("again", inert(sweep.get("origin") or "")),
    ]
    screen.pairs([(name, value) for name, value in lines if value])
