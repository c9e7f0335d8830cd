"""Attainable rates of placed jobs: max-min fair over tenants, by progressive filling.

Source: Gandiva_fair (EuroSys 2020), 3.2. The paper divides tickets by all GPUs of a tenant's jobs
(1). On an unbalanced placement, tenants then get less than their share. Here, the rates x raise the
lowest weighted total of a tenant as far as the placement allows, then the second lowest, and so on.
The constraints are x_j <= size_j, and on each node a sum of at most its GPUs.

Nodes are visited one by one. A node's GPUs are shared so that the totals of its tenants become
equal, given their rates on other nodes. This is repeated until nothing changes (block ascent). The
possible totals of one-node jobs form a polymatroid, so the result converges to the max-min optimum.
A job over several nodes gets the lowest rate that any of its nodes would give it. Tenants without
weight share what is left.

Rates are integers, `UNIT` per GPU.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

# Divisible by all numbers up to 16, so that usual shares of a GPU are exact.
UNIT = 720_720
# Sweeps end when no rate changes by more than SETTLED, or after NODE_VISITS node visits.
SETTLED = UNIT // 100_000
NODE_VISITS = 6000
LEAST_SWEEPS, MOST_SWEEPS = 4, 60


class FillRow(NamedTuple):
    """A participant: its weight, its current amount, and the most that it can get in addition."""

    weight: int
    has: int
    most: int


def water_fill(amount: int, rows: Sequence[tuple[int, int, int]]) -> list[int]:
    """Divide an amount so that (has + given) / weight becomes equal; return the parts.

    `rows`: tuples like `FillRow`, with weights above 0. Each part is between 0 and `most`. The
    rounding remainder, less than one per row, is not given out.
    """
    mosts = [row[2] for row in rows]
    if not rows or sum(mosts) <= amount:
        return mosts
    # The levels at which rows start to get units, then the levels at which they are full.
    levels = [has / weight for weight, has, _ in rows]
    levels += [(has + most) / weight for weight, has, most in rows]
    count = len(rows)
    # sums of the rows that are being filled at this level; `full`: units given to full rows
    weight = has = full = 0
    order = sorted(range(2 * count), key=levels.__getitem__)
    for step in order:
        if weight * levels[step] - has + full >= amount:
            break
        if step < count:
            its_weight, its_has, _ = rows[step]
            weight += its_weight
            has += its_has
        else:
            its_weight, its_has, its_most = rows[step - count]
            weight -= its_weight
            has -= its_has
            full += its_most
    if not weight:  # the full rows use the whole amount, and no other row has started to get units
        before = set(order[: order.index(step)])
        return [most if count + place in before else 0 for place, most in enumerate(mosts)]
    level_up = amount - full + has
    given = [own_weight * level_up // weight - own_has for own_weight, own_has, _ in rows]
    return [
        0 if units < 0 else units if units < most else most  # noqa: FURB136 - half of the time
        for units, most in zip(given, mosts, strict=True)
    ]


class SpanningJob(NamedTuple):
    """A job over several nodes: its tenant, and its GPUs by node."""

    tenant: int
    gpus: Mapping[int, int]

    @property
    def size(self) -> int:
        """Return the number of GPUs of the job on all nodes."""
        return sum(self.gpus.values())


class Rates(NamedTuple):
    """Rates in units: by node and tenant for jobs on one node, by job id for other jobs."""

    small: dict[int, dict[int, int]]
    spanning: dict[int, int]


def placement_rates(
    nodes: Mapping[int, int],
    demand: Mapping[int, Mapping[int, int]],
    spanning: Mapping[int, SpanningJob],
    weights: Mapping[int, int],
) -> Rates:
    """Return the rates of one GPU type.

    `nodes`: GPUs by node. `demand`: GPUs of jobs on one node, by node and tenant. `weights`: by
    tenant, in any common unit; a missing weight is 0.
    """
    state = _Filling(nodes, demand, spanning, weights)
    state.settle()
    state.fill_rest()
    return Rates(state.small, state.spanning)


def level_again(
    amounts: Mapping[int, int],
    demand: Mapping[int, Mapping[int, int]],
    weights: Mapping[int, int],
    totals: dict[int, int],
) -> dict[int, dict[int, int]]:
    """Recompute the rates on some nodes, given the tenants' rates on the other nodes.

    `amounts`: units of each node for jobs on one node. `demand`: GPUs by node and tenant. `totals`:
    units by tenant on the other nodes. The new rates are added to `totals`.
    """
    rates: dict[int, dict[int, int]] = {}
    for node in sorted(demand):
        asked = sorted(demand[node].items())
        weighted = [(tenant, gpus) for tenant, gpus in asked if weights.get(tenant)]
        rows = [
            FillRow(weights[tenant], totals.get(tenant, 0), gpus * UNIT)
            for tenant, gpus in weighted
        ]
        units = water_fill(amounts[node], rows)
        of_node = {tenant: count for (tenant, _), count in zip(weighted, units, strict=True)}
        others = [(tenant, gpus) for tenant, gpus in asked if not weights.get(tenant)]
        rest = [FillRow(1, 0, gpus * UNIT) for _, gpus in others]
        units = water_fill(max(0, amounts[node] - sum(of_node.values())), rest)
        of_node |= {tenant: count for (tenant, _), count in zip(others, units, strict=True)}
        for tenant, count in of_node.items():
            totals[tenant] = totals.get(tenant, 0) + count
        rates[node] = of_node
    return rates


class _Filling:
    """The rates computed so far, and each tenant's total."""

    def __init__(
        self,
        nodes: Mapping[int, int],
        demand: Mapping[int, Mapping[int, int]],
        spanning: Mapping[int, SpanningJob],
        weights: Mapping[int, int],
    ) -> None:
        self._gpus, self._jobs, self._weights = nodes, spanning, weights
        self._order = sorted(node for node in demand if demand[node])
        self._most = {
            node: {tenant: count * UNIT for tenant, count in sorted(demand[node].items())}
            for node in self._order
        }
        self._weighted = {
            node: [
                (tenant, weights[tenant], most)
                for tenant, most in self._most[node].items()
                if weights.get(tenant)
            ]
            for node in self._order
        }
        self._ids = [job for job in sorted(spanning) if weights.get(spanning[job].tenant)]
        self._on: dict[int, list[int]] = {}
        for job in self._ids:
            for node in spanning[job].gpus:
                self._on.setdefault(node, []).append(job)
        self.small: dict[int, dict[int, int]] = {
            node: dict.fromkeys(most, 0) for node, most in self._most.items()
        }
        self.spanning: dict[int, int] = dict.fromkeys(sorted(spanning), 0)
        self._totals = dict.fromkeys(weights, 0)
        self._start()

    def _start(self) -> None:
        """Start with each tenant's part of all GPUs, divided evenly among its jobs."""
        asked: dict[int, int] = {}
        for units_of in self._most.values():
            for tenant, units in units_of.items():
                asked[tenant] = asked.get(tenant, 0) + units
        for job in self._ids:
            one = self._jobs[job]
            asked[one.tenant] = asked.get(one.tenant, 0) + one.size * UNIT
        tenants = [tenant for tenant in sorted(asked) if self._weights.get(tenant)]
        rows = [FillRow(self._weights[tenant], 0, asked[tenant]) for tenant in tenants]
        share = dict(zip(tenants, water_fill(sum(self._gpus.values()) * UNIT, rows), strict=True))
        for node, weighted in self._weighted.items():
            for tenant, _, most in weighted:
                self._set(node, tenant, most * share[tenant] // asked[tenant])
        for job in self._ids:
            one = self._jobs[job]
            self._set_spanning(job, one.size * UNIT * share[one.tenant] // asked[one.tenant])

    def _set(self, node: int, tenant: int, units: int) -> int:
        before = self.small[node][tenant]
        self.small[node][tenant] = units
        self._totals[tenant] += units - before
        return abs(units - before)

    def _set_spanning(self, job: int, units: int) -> int:
        before = self.spanning[job]
        self.spanning[job] = units
        self._totals[self._jobs[job].tenant] += units - before
        return abs(units - before)

    def settle(self) -> None:
        """Equalize the totals, node by node, until nothing changes or a limit is reached."""
        visits = max(1, len(self._order))
        sweeps = max(LEAST_SWEEPS, min(MOST_SWEEPS, NODE_VISITS // visits))
        for _ in range(sweeps):
            change = max([self._level_spanning(job) for job in self._ids], default=0)
            for node in self._order:
                change = max(change, self._level(node))
            if change <= SETTLED:
                break

    def _left(self, node: int) -> int:
        """Return the units of a node that jobs over several nodes do not use."""
        jobs = self._on.get(node)
        if not jobs:
            return self._gpus[node] * UNIT
        used = sum(
            self.spanning[job] * self._jobs[job].gpus[node] // self._jobs[job].size for job in jobs
        )
        return max(0, self._gpus[node] * UNIT - used)

    def _level(self, node: int) -> int:
        rates, totals = self.small[node], self._totals
        entries = self._weighted[node]
        amount = self._left(node)
        if len(entries) == 1:
            tenant, _, most = entries[0]
            return self._set(node, tenant, min(most, amount))
        rows = [(weight, totals[tenant] - rates[tenant], most) for tenant, weight, most in entries]
        given = water_fill(amount, rows)
        change = 0
        for (tenant, _, _), units in zip(entries, given, strict=True):
            if units != rates[tenant]:
                change = max(change, self._set(node, tenant, units))
        return change

    def _level_spanning(self, job: int) -> int:
        """Set the job's rate to the lowest that its nodes would give it as a one-node job."""
        one, rate, totals = self._jobs[job], self.spanning[job], self._totals
        weight_of_one, total, size = self._weights[one.tenant], totals[one.tenant], one.size
        least = size * UNIT
        for node, count in sorted(one.gpus.items()):
            mine = rate * count // size
            rows = [(weight_of_one, total - mine, count * UNIT)]
            entries = self._weighted.get(node)
            if entries:
                rates = self.small[node]
                rows += [
                    (weight, totals[tenant] - rates[tenant], most)
                    for tenant, weight, most in entries
                ]
            given = water_fill(self._left(node) + mine, rows)
            least = min(least, given[0] * size // count)
        return self._set_spanning(job, least)

    def fill_rest(self) -> None:
        """Give what is left of each node to tenants without weight, in equal parts."""
        for node in self._order:
            rates = self.small[node]
            others = [tenant for tenant in rates if not self._weights.get(tenant)]
            if others:
                left = self._left(node) - sum(rates.values())
                rows = [FillRow(1, 0, self._most[node][tenant]) for tenant in others]
                rates.update(zip(others, water_fill(max(0, left), rows), strict=True))
        for job, one in self._jobs.items():
            if not self._weights.get(one.tenant):
                free = [
                    max(0, self._left(node) - sum(self.small.get(node, {}).values())) // count
                    for node, count in one.gpus.items()
                ]
                self.spanning[job] = min(UNIT, *free) * one.size
