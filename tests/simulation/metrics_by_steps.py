"""A second implementation of a run's figures, in steps of five minutes or job by job.

It is slow and plain: scipy's maximum flow, every set of GPU types, a level found by bisection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import inf

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow

from evenshare_core.simulation.books import Books
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import HOUR_US, SECOND_US

STEP_US = 300 * SECOND_US


def sets_of(names: Sequence[str]) -> list[tuple[str, ...]]:
    return [one for size in range(1, len(names) + 1) for one in combinations(names, size)]


def flow(asked: Sequence[tuple[Iterable[str], int]], there: Mapping[str, int]) -> int:
    """Return how many GPUs of `there` the requests (accepted types, GPUs) can use at most."""
    types = sorted(there)
    size = 2 + len(asked) + len(types)
    edges = np.zeros((size, size), dtype=np.int32)
    for row, (accepted, gpus) in enumerate(asked, 2):
        edges[0, row] = gpus
        for column, name in enumerate(types, 2 + len(asked)):
            edges[row, column] = gpus if name in accepted else 0
            edges[column, 1] = there[name]
    return int(maximum_flow(csr_matrix(edges), 0, 1).flow_value)


class Steps:
    """The figures in steps of five minutes."""

    def __init__(self, cluster: Cluster, rows: Sequence[SimJob], books: Books) -> None:
        self.cluster, self.rows, self.books = cluster, rows, books
        self.types = sorted({node.gpu_type for node in cluster.nodes})
        self.begin_us = min(row.submitted_us for row in rows)
        ends = [row.end_us for row in books.jobs] + [row.end_us for row in books.leases]
        self.end_us = max([*ends, *(row.submitted_us for row in rows)])
        over = {row.job: row.end_us for row in books.jobs}
        self.over = {row.id: over.get(row.id, self.end_us) for row in rows}
        self.demanding = [row for row in rows if self.accepted(row)]

    def accepted(self, row: SimJob) -> tuple[str, ...]:
        whole = {
            name: sum(node.gpus for node in self.cluster.nodes if node.gpu_type == name)
            for name in self.types
        }
        return tuple(name for name in row.gpu_types or self.types if row.gpus <= whole[name])

    def up(self, at_us: int) -> dict[str, int]:
        gpus = {node.id: node.gpus for node in self.cluster.nodes}
        for change in sorted(self.cluster.changes, key=lambda change: change.at_us):
            if change.at_us <= at_us:
                gpus[change.node] = change.gpus
        return {
            name: sum(gpus[node.id] for node in self.cluster.nodes if node.gpu_type == name)
            for name in self.types
        }

    def quotas(self, tenant: int, at_us: int) -> dict[str, int]:
        found = {}
        for name in self.types:
            rows = [row for row in self.cluster.quotas if row.gpu_type == name]
            total, there = sum(row.gpus for row in rows), self.up(at_us)[name]
            exact = [row.gpus * min(1, there / total) if total else 0 for row in rows]
            whole = [int(gpus + 1e-9) for gpus in exact]
            left = min(total, there) - sum(whole)
            # The largest remainder comes first; on ties the first row.
            order = sorted(range(len(rows)), key=lambda i: (round(whole[i] - exact[i], 9), i))
            for place in order[:left]:
                whole[place] += 1
            found[name] = sum(
                gpus for row, gpus in zip(rows, whole, strict=True) if row.tenant == tenant
            )
        return found

    def held(self, at_us: int, *, useful: bool) -> list[tuple[SimJob, str]]:
        by_id = {row.id: row for row in self.rows}
        return [
            (by_id[lease.job], lease.gpu_type)
            for lease in self.books.leases
            if lease.start_us + (lease.overhead_us if useful else 0) <= at_us < lease.end_us
        ]

    def active(self, at_us: int) -> list[SimJob]:
        return [row for row in self.demanding if row.submitted_us <= at_us < self.over[row.id]]

    def tenant_sums(self, hours: int) -> dict[tuple[int, int], dict[tuple[str, ...], list[int]]]:
        """Return, by (tenant, period) and set of types, GPU-us deserved and received."""
        sums: dict[tuple[int, int], dict[tuple[str, ...], list[int]]] = {}
        for at_us in range(self.begin_us, self.end_us, STEP_US):
            for tenant in (1, 2, 3):
                quotas = self.quotas(tenant, at_us)
                mine = [row for row in self.active(at_us) if row.tenant == tenant]
                done = [pair for pair in self.held(at_us, useful=True) if pair[0].tenant == tenant]
                key = (tenant, (at_us - self.begin_us) // (hours * HOUR_US))
                row = sums.setdefault(key, {one: [0, 0] for one in sets_of(self.types)})
                for one, pair in row.items():
                    asked = [
                        (self.accepted(r), r.gpus)
                        for r in mine
                        if set(self.accepted(r)) <= set(one)
                    ]
                    pair[0] += STEP_US * flow(asked, {name: quotas[name] for name in one})
                    pair[1] += STEP_US * sum(r.gpus for r, name in done if name in one)
        return sums

    def shortfalls(self, hours: int) -> list[tuple[int, int, int, int]]:
        """Return (tenant, period, deserved, short) of periods with deserved GPU-time."""
        whole = tuple(self.types)
        return [
            (*key, row[whole][0], max(0, *(pair[0] - pair[1] for pair in row.values())))
            for key, row in sorted(self.tenant_sums(hours).items())
            if row[whole][0]
        ]

    def pool(self) -> tuple[float | None, float | None]:
        """Return (utilisation, waste) between the first and the last submission."""
        useful = wasted = whole = 0
        for at_us in range(self.begin_us, max(row.submitted_us for row in self.rows), STEP_US):
            up, held = self.up(at_us), self.held(at_us, useful=False)
            idle = {
                name: up[name] - sum(row.gpus for row, used in held if used == name)
                for name in self.types
            }
            running = {row.id for row, _ in held}
            waits = [row for row in self.active(at_us) if row.id not in running]
            now = sum(row.gpus for row, _ in self.held(at_us, useful=True))
            overhead = sum(row.gpus for row, _ in held) - now
            useful, whole = useful + now, whole + sum(up.values())
            wasted += flow([(self.accepted(row), row.gpus) for row in waits], idle) + overhead
        return (useful / whole, wasted / whole) if whole else (None, None)


def deficit(rows: Sequence[tuple[int, int, int, int]]) -> float | None:
    deserved = sum(row[2] for row in rows)
    return sum(row[3] for row in rows) / deserved if deserved else None


def filled(rows: Sequence[SimJob], quotas: Mapping[str, int]) -> dict[int, float]:
    """Return each job's min(gang, level x weight).

    A full set of types fixes the level of its jobs.
    """
    rates: dict[int, float] = {}

    def load(one: tuple[str, ...], level: float) -> float:
        return sum(
            rates.get(row.id, min(row.gpus, level * row.weight))
            for row in rows
            if set(row.gpu_types or quotas) <= set(one)
        )

    limits = {one: sum(quotas[name] for name in one) for one in sets_of(sorted(quotas))}
    while len(rates) < len(rows):
        low, high = 0.0, 100.0  # a level higher than every gang divided by its weight
        for _ in range(60):
            level = (low + high) / 2
            fits = all(load(one, level) <= most + 1e-9 for one, most in limits.items())
            low, high = (level, high) if fits else (low, level)
        full = [one for one, most in limits.items() if load(one, low + 1e-6) > most + 1e-9]
        for row in rows:
            inside = any(set(row.gpu_types or quotas) <= set(one) for one in full)
            if row.id not in rates and (inside or not full):
                rates[row.id] = min(row.gpus, low * row.weight)
    return rates


def fluid_ends(rows: Sequence[SimJob], quotas: Mapping[str, int]) -> dict[int, float]:
    """Return the ends of one tenant's jobs, by bisection of the level."""
    left = {row.id: float(row.gpus * row.duration_us) for row in rows}
    ends = {row.id: inf for row in rows}
    instants = [float(row.submitted_us) for row in rows]
    instants += [float(row.cancel_us) for row in rows if row.cancel_us is not None]
    now_us = 0.0
    while True:
        active = [
            row
            for row in rows
            if row.submitted_us <= now_us < (row.cancel_us or inf) and left[row.id] > 0
        ]
        rates = filled(active, quotas)
        to_end = {row.id: left[row.id] / rates[row.id] for row in active if rates[row.id] > 1e-6}
        steps = [*to_end.values(), *(at - now_us for at in instants if at > now_us)]
        if not steps:
            return ends
        span_us = min(steps)
        for row in active:
            left[row.id] -= rates[row.id] * span_us
            if to_end.get(row.id, inf) <= span_us * (1 + 1e-9):
                left[row.id] = 0.0
                ends[row.id] = (now_us + span_us) / SECOND_US
        now_us += span_us
        # Rounding makes sums miss a time slightly. Jobs are compared with times, so sums snap to
        # them.
        now_us = next((at for at in instants if abs(at - now_us) < 1), now_us)
