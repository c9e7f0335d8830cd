"""Revenue fairness: how closely lenders' incomes follow their contributions.

Source: Astraea-online (TC 2022). Section 5.1 defines alpha = share of the revenue / share of the
resources; (2) and (11) define a contribution as idle quota. Section 5.1 adds the utilities of jobs
to the revenue of their owners. These are left out, as traces have no utilities.

| here | definition | unit |
|---|---|---|
| contributed | integral of a tenant's lendable idle quota of a GPU type, over the time in which | |
| | at least one GPU of that type is borrowed | GPU-us |
| earned | its income from charges for GPUs of that type | micro-credits |
| alpha | (earned / all earned of the type) / (contributed / all contributed of the type) | ratio |
| revenue fairness | mean of min(1, alpha) over lenders, weighted by contribution; over types | |
| | weighted by their revenue | 0 to 1 |

It is the share of all revenue paid in proportion to contributions; 1 if every lender was paid so.
Prices and the number of borrowed GPUs vary: GPUs that are idle while many GPUs are borrowed earn
more than others. The operator owns capacity without an owner and counts as a lender, as for
charges. All arithmetic is in integers until the last division.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from evenshare_core.simulation.books import Books


class Lender(NamedTuple):
    """A tenant's (0: the operator's) contribution and income of a GPU type.

    `alpha` is None if it contributed nothing.
    """

    gpu_type: str
    tenant: int
    contributed_gpu_us: int
    earned_micro: int
    alpha: Fraction | None


def lenders_of(books: Books) -> list[Lender]:
    """Return lenders by (GPU type, tenant), for types with revenue; empty without charges."""
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
    """Return the revenue fairness of a run, from 0 to 1; None without revenue."""
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
