"""Revenue fairness alpha: a tenant's part of the revenue over its part of the resources.

Source: Astraea-online (TC 2022), section 5.1.

| paper | here | unit |
|---|---|---|
| g_u | `gains[u]`, of `TenantRevenue.gain` | any single unit: credits, micro-credits, utility |
| sum of f over all jobs | `total` | the same |
| q_w^u, q_p^u | `quotas[u]`: a number per kind of resource | workers, parameter servers; GPUs |
| alpha_u | result | ratio; 1 is exact |

A tenant's payment to itself is both cost and income. So all gains, with the operator's income from
unallocated capacity, sum to the utilities. The paper's income leaves such payments out, and they
are lost.

Arithmetic is exact: integers and fractions are kept, a float counts as its exact fraction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

Amount = int | float | Fraction


@dataclass(frozen=True, slots=True)
class TenantRevenue:
    """The parts of a tenant's gain g_u; all amounts in one unit.

    `own_utility` is the utility of its jobs within its own share. `borrowed_utility` and `cost` are
    the utility and cost of its jobs on borrowed resources. `income` is its earnings from lending,
    including from itself.
    """

    own_utility: Amount = 0
    income: Amount = 0
    borrowed_utility: Amount = 0
    cost: Amount = 0

    @property
    def gain(self) -> Fraction:
        """g_u: the utility of all jobs, plus income, minus cost."""
        utility = Fraction(self.own_utility) + Fraction(self.borrowed_utility)
        return utility + Fraction(self.income) - Fraction(self.cost)


def revenue_fairness(
    gains: Mapping[int, Amount],
    quotas: Mapping[int, Sequence[int]],
    *,
    total: Amount | None = None,
) -> dict[int, Fraction | None]:
    """Return alpha of each tenant of `quotas`: its part of `total` over its part of the resources.

    The part of the resources is the mean, over the kinds with any quota, of the tenant's quota over
    all quotas. A tenant without an entry in `gains` gains 0. `total` defaults to the sum of the
    gains. Pass the sum of utilities if a party without quota, for example the operator, earns too.
    Alpha is None for a tenant without quota, and for all tenants if the total is 0.

    Raises:
        ValueError: a quota is negative, tenants have different numbers of kinds, or a tenant
            without a row of quotas has gains while no total is given.
    """
    parts = resource_parts(quotas)
    if total is None:
        if strangers := sorted(gains.keys() - quotas.keys()):
            raise ValueError(f"give the total: {strangers} earn but have no row of quotas")
        whole = sum((Fraction(gain) for gain in gains.values()), Fraction(0))
    else:
        whole = Fraction(total)
    return {
        tenant: Fraction(gains.get(tenant, 0)) / whole / part if whole > 0 and part else None
        for tenant, part in parts.items()
    }


def resource_parts(quotas: Mapping[int, Sequence[int]]) -> dict[int, Fraction]:
    """Return each tenant's part of the resources: the mean over kinds of its quota over all quotas.

    Kinds without any quota are left out; if no kind is left, every part is 0.

    Raises:
        ValueError: a quota is negative, or tenants have different numbers of kinds.
    """
    if len({len(row) for row in quotas.values()}) > 1:
        raise ValueError("give every tenant a quota of each kind of resource, 0 if it has none")
    if any(quota < 0 for row in quotas.values() for quota in row):
        raise ValueError("a quota must be at least 0")
    sums = [sum(column) for column in zip(*quotas.values(), strict=True)]
    kinds = [kind for kind, of_all in enumerate(sums) if of_all]
    return {
        tenant: sum((Fraction(row[kind], sums[kind]) for kind in kinds), Fraction(0))
        / max(len(kinds), 1)
        for tenant, row in quotas.items()
    }
