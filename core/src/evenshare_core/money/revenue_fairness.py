"""Revenue fairness alpha: a tenant's part of the revenue over its part of the resources.

Source: Astraea-online (TC 2022), section 5.1.

| paper | here | unit |
|---|---|---|
| g_u | `gains[u]`, of `TenantRevenue.gain` | one for all: credits, micro-credits, utility |
| sum of f over all jobs | `total` | the same |
| q_w^u, q_p^u | `quotas[u]`: one number per kind of resource | workers, parameter servers; GPUs |
| alpha_u | result | ratio; 1 is exact |

A payment to oneself is both cost and income, so that the gains of all, the operator's income from
capacity that nobody owns included, sum to the utilities. The paper's income leaves the payment to
oneself out, and loses it.

Exact: integers and fractions stay what they are, a float counts as the fraction that it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

Amount = int | float | Fraction


@dataclass(frozen=True, slots=True)
class TenantRevenue:
    """What makes up a tenant's gain g_u; every amount in one unit.

    `own_utility`: of its jobs within its own share. `borrowed_utility` and `cost`: of its jobs on
    borrowed resources, and what these paid. `income`: what it earned by lending, from itself too.
    """

    own_utility: Amount = 0
    income: Amount = 0
    borrowed_utility: Amount = 0
    cost: Amount = 0

    @property
    def gain(self) -> Fraction:
        """g_u: utility of own jobs plus income less cost."""
        utility = Fraction(self.own_utility) + Fraction(self.borrowed_utility)
        return utility + Fraction(self.income) - Fraction(self.cost)


def revenue_fairness(
    gains: Mapping[int, Amount],
    quotas: Mapping[int, Sequence[int]],
    *,
    total: Amount | None = None,
) -> dict[int, Fraction | None]:
    """Return alpha of each tenant of `quotas`: its part of `total` over its part of the resources.

    The part of the resources is the mean, over the kinds of which there are any, of its quota over
    all quotas. `gains` may leave tenants out (0). `total` is the sum of the gains where it is not
    given; give the sum of utilities where somebody without quota, as the operator, earns too.
    None: a tenant without quota, and everybody where there was nothing to share.

    Raises:
        ValueError: a negative quota, tenants with different numbers of kinds, or gains of a
            tenant without a row of quotas while no total is given.
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
    """Return each tenant's part of the resources: the mean over kinds of its quota over all.

    Kinds of which nobody has any are left out; with no kind left everybody's part is 0.

    Raises:
        ValueError: a negative quota, or tenants with different numbers of kinds.
    """
    if len({len(row) for row in quotas.values()}) > 1:
        raise ValueError("give every tenant a quota of each kind of resource, 0 where it has none")
    if any(quota < 0 for row in quotas.values() for quota in row):
        raise ValueError("a quota must be at least 0")
    sums = [sum(column) for column in zip(*quotas.values(), strict=True)]
    kinds = [kind for kind, of_all in enumerate(sums) if of_all]
    return {
        tenant: sum((Fraction(row[kind], sums[kind]) for kind in kinds), Fraction(0))
        / max(len(kinds), 1)
        for tenant, row in quotas.items()
    }
