"""Revenue fairness: how far what lenders earned follows what they contributed.

Source: Astraea-online (TC 2022), 5.1 (alpha = share of the revenue / share of the resources), and
(2), (11) for what a tenant contributes to borrowers: its idle quota. Utilities of jobs, which 5.1
adds to the revenue of their owners, are left out: traces do not tell them.

| here | definition | unit |
|---|---|---|
| contributed | integral of a tenant's lendable idle quota of a GPU type, over the time in which | |
| | at least one GPU of that type is borrowed | GPU-us |
| earned | its income from charges for GPUs of that type | micro-credits |
| alpha | (earned / all earned of the type) / (contributed / all contributed of the type) | ratio |
| revenue fairness | mean of min(1, alpha) over lenders, weighted by what they contributed; over | |
| | types weighted by their revenue | 0 to 1 |

So it is the share of all revenue that went where the contribution came from: 1 where every lender
was paid in proportion. The price and the number of borrowed GPUs vary, so that GPUs which idle
while many are borrowed earn more than others. Capacity without an owner is the operator's, who
counts as a lender, as for charges. Integers until the last division.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from evenshare_core.simulation.books import Books


class Lender(NamedTuple):
    """A tenant (0: the operator) with what it contributed of a GPU type and earned by it.

    `alpha` is None where nothing was contributed.
    """

    gpu_type: str
    tenant: int
    contributed_gpu_us: int
    earned_micro: int
    alpha: Fraction | None


def lenders_of(books: Books) -> list[Lender]:
    """Return who contributed to borrowers of which type, by (type, tenant); empty: nobody paid."""
    contributed = books.contributed()
    rows = []
    for gpu_type, paid in sorted(books.incomes.items()):
        given = _of_type(contributed, gpu_type)
        everything, revenue = sum(given.values()), sum(paid.values())
        for tenant in sorted(given.keys() | paid.keys()):
            gave, got = given.get(tenant, 0), paid.get(tenant, 0)
            alpha = Fraction(got * everything, revenue * gave) if gave else None
            rows.append(Lender(gpu_type, tenant, gave, got, alpha))
    return rows


def _of_type(sums: Mapping[tuple[str, int], int], gpu_type: str) -> dict[int, int]:
    return {tenant: value for (name, tenant), value in sums.items() if name == gpu_type}


def revenue_fairness(lenders: Sequence[Lender]) -> float | None:
    """Return the figure of a run; None where nothing was lent for money."""
    revenue = sum(row.earned_micro for row in lenders)
    if not revenue:
        return None
    fair = Fraction(0)
    for gpu_type in {row.gpu_type for row in lenders}:
        rows = [row for row in lenders if row.gpu_type == gpu_type]
        paid = sum(row.earned_micro for row in rows)
        given = sum(row.contributed_gpu_us for row in rows)
        if given:
            fair += sum(
                min(Fraction(row.earned_micro), Fraction(paid * row.contributed_gpu_us, given))
                for row in rows
            )
    return float(fair / revenue)
