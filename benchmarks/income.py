"""Benchmark of the sweep over lease events: CPU time per event, without writing rows."""

import heapq
import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from evenshare_core.money.revenue.records import Event
from evenshare_core.money.revenue.terms import Sweep
from evenshare_core.units import SECOND_US

POOLS = ((480, 14, 4_000), (8_000, 100, 2_000))  # (GPUs, tenants, leases) of each pool
LEASE_US = 900 * SECOND_US
BATCH = 500
TURNS = 3


def history(gpus: int, tenants: int, leases: int) -> list[Event]:
    """Return events in order of pool time, with about `gpus` GPUs in use after the first hour."""
    draw = random.Random(7)  # noqa: S311 - a seeded story, not a secret
    events: list[Event] = []

    def tell(kind: str, at_us: int, lease: int, term: int, data: dict[str, Any]) -> None:
        tenant = 1 + lease % tenants
        who = (lease, lease, tenant, term) if lease else (0, 0, 0, 0)
        events.append(Event(len(events) + 1, kind, at_us, *who, {"gpu_type": "v100", **data}))

    quotas = dict.fromkeys(range(1, tenants + 1), (gpus // tenants, None))
    tell("entitled", 0, 0, 0, {"capacity": gpus, "quotas": quotas})
    gap_us = 3 * LEASE_US * 4 // gpus  # a lease has three terms and four GPUs on average
    due: list[tuple[int, int, int, int]] = []  # (time, lease, term, terms left)
    for lease in range(1, leases + 1):
        heapq.heappush(due, (lease * gap_us, lease, 1, draw.randrange(6)))
    while due:
        at_us, lease, term, left = heapq.heappop(due)
        if left < 0:
            tell("ended", at_us, lease, term - 1, {"started": True})
            continue
        own = draw.randrange(5)
        data = {"own": own, "borrowed": 4 - own, "price": "1.234567"}
        tell("granted" if term == 1 else "renewed", at_us, lease, term, data)
        if term == 1:
            tell("started", at_us, lease, term, {})
        length_us = LEASE_US if left else draw.randrange(SECOND_US, LEASE_US)
        heapq.heappush(due, (at_us + length_us, lease, term + 1, left - 1))
    return events


def swept(events: list[Event], make: Callable[[], Sweep]) -> tuple[float, int, int]:
    """Return CPU seconds, the number of split terms, and the largest state in bytes."""
    sweep, split, most = make(), 0, 0
    by_integrals = sweep.by_integrals
    began = time.process_time()
    for index, event in enumerate(events, start=1):
        for term in sweep.feed(event):
            split += bool(term.shares)
        if index % BATCH == 0:
            state = json.dumps(sweep.to_state())
            sweep = Sweep.from_state(json.loads(state))
            sweep.by_integrals = by_integrals
            most = max(most, len(state))
    return time.process_time() - began, split, most


def main() -> None:
    """Print the time per event of both rules for each pool, and their ratio."""
    for gpus, tenants, leases in POOLS:
        events = history(gpus, tenants, leases)
        former, present = [], []
        for _ in range(TURNS):
            former.append(swept(events, lambda: Sweep(by_integrals=True)))
            present.append(swept(events, Sweep))
        before, now = (statistics.median(run[0] for run in runs) for runs in (former, present))
        print(
            f"{gpus:>6,} GPUs {tenants:>4} tenants {len(events):>7,} events"
            f" {present[0][1]:>7,} terms split: {now / len(events) * 1e6:6.1f} us an event,"
            f" by integrals {before / len(events) * 1e6:6.1f}, ratio {now / before:.2f};"
            f" state {present[0][2] / 1e3:,.0f} kB, {former[0][2] / 1e3:,.0f} kB"
        )


if __name__ == "__main__":
    main()
