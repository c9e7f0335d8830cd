"""Gain-as-you-contribute: who is paid for a borrowed term, by integrals of idle quota.

Source: Astraea-online (TC 2022), eq. (2) and (11): in each slot, owner u earns the share
(q_u - own use_u) / sum over owners of what a borrower pays. Over a term whose price and
borrowed GPUs are fixed, the charge is split by the integrals of idle quota, and money is rounded
once per term instead of once per slot. While all idle quota together stays the same, that is the
sum over the slots; where it changes within a term, slots with more idle quota weigh more.

| paper        | here                                             | unit             |
|--------------|--------------------------------------------------|------------------|
| q_u          | `quotas[u][0]`: effective quota of the type      | GPUs             |
| own use_u    | `own[u]`: own GPUs of u's running terms          | GPUs             |
| q_u - use_u  | `_rate`: idle, at most what u lends              | GPUs             |
| a(t) - sum   | capacity - sum of quotas: the operator's         | GPUs             |
| integral     | `IdleSums.mark`: cumulative; a term's weights are the difference of two marks |
|              |                                                  | GPU-microseconds |

Departures: a term instead of slots (above); `lend_limit` and RESERVE bound what counts as idle
(what is not lent earns nothing); capacity without an owner earns for the operator, and so does
everything where nobody had lendable idle quota. A tenant may be among its own lenders and pay
itself, as in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evenshare_core.money.fixed_point import largest_remainder

# Key of the operator among lenders; tenant ids begin at 1.
OPERATOR = 0
# Lendable GPUs of a quota: (gpus, at most lendable or None for all). RESERVE lends (gpus, 0).
LendableQuota = tuple[int, int | None]


@dataclass(frozen=True, slots=True)
class ChargeShare:
    """What one lender earns of a term: its weight, its money, and the GPU-time it lent."""

    lender: int
    weight_gpu_us: int
    amount_micro: int
    lent_gpu_us: int


def split_charge(
    amount_micro: int, borrowed_gpu_us: int, weights: Mapping[int, int]
) -> tuple[ChargeShare, ...]:
    """Split a term's charge and its borrowed GPU-time over lenders by weight, exactly.

    Both sum to what was given, each part within one unit of its exact share; lenders of weight
    0 are left out. All weights 0: the operator takes it all.

    Raises:
        ValueError: an amount or a weight is negative.
    """
    lenders = _lenders(weights)
    if not lenders:
        return (ChargeShare(OPERATOR, 0, amount_micro, borrowed_gpu_us),)
    present = [weights[lender] for lender in lenders]
    amounts = largest_remainder(amount_micro, present)
    lent = largest_remainder(borrowed_gpu_us, present)
    return tuple(map(ChargeShare, lenders, present, amounts, lent))


def split_amount(amount_micro: int, weights: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return (lender, money) of a charge: `split_charge` for those who need no more than that.

    Raises:
        ValueError: an amount or a weight is negative.
    """
    lenders = _lenders(weights)
    if not lenders:
        return [(OPERATOR, amount_micro)]
    amounts = largest_remainder(amount_micro, [weights[lender] for lender in lenders])
    return list(zip(lenders, amounts, strict=True))


def _lenders(weights: Mapping[int, int]) -> list[int]:
    """Those with a weight, in the order in which remainders tie: by tenant id, operator last."""
    lenders = sorted([lender for lender, weight in weights.items() if weight])
    if lenders and lenders[0] == OPERATOR:
        lenders.append(lenders.pop(0))
    return lenders


class IdleSums:
    """Integrals of lendable idle quota of one GPU type, advanced by timed changes.

    Between changes every tenant's idle quota is constant, so that a sum is its value at its
    last change plus rate x time since: a change costs O(1), a mark O(tenants). Times may not
    run backwards: an earlier instant counts as the present one (see `terms`, "Late events").
    """

    def __init__(self) -> None:
        self.now_us = 0
        self.capacity = 0
        self.quotas: dict[int, LendableQuota] = {}
        self.own: dict[int, int] = {}
        # By lender: (offset, rate, since when); its integral at t is offset + rate x t.
        self._lines: dict[int, tuple[int, int, int]] = {}

    def entitle(self, at_us: int, capacity: int, quotas: Mapping[int, LendableQuota]) -> None:
        """Replace capacity and all quotas of the type from `at_us` on."""
        self._advance(at_us)
        former = set(self.quotas)
        self.capacity = capacity
        self.quotas = dict(quotas)
        for tenant in former | set(quotas):
            self._set_rate(tenant, self._idle(tenant))
        assigned = sum(gpus for gpus, _ in quotas.values())
        self._set_rate(OPERATOR, max(capacity - assigned, 0))

    def use(self, at_us: int, tenant: int, own_change: int) -> None:
        """Change a tenant's own GPUs in use by `own_change` from `at_us` on."""
        self._advance(at_us)
        if own_change:
            self.own[tenant] = self.own.get(tenant, 0) + own_change
            if not self.own[tenant]:
                del self.own[tenant]
            self._set_rate(tenant, self._idle(tenant))

    def mark(self, at_us: int) -> dict[int, int]:
        """Return each lender's integral up to `at_us` (zeros left out), in GPU-microseconds."""
        self._advance(at_us)
        now_us = self.now_us
        return {
            lender: total
            for lender, (offset, rate, _) in self._lines.items()
            if (total := offset + rate * now_us)
        }

    def rates(self) -> dict[int, int]:
        """Return each lender's lendable idle GPUs now."""
        return {lender: rate for lender, (_, rate, _) in self._lines.items() if rate}

    def _advance(self, at_us: int) -> None:
        self.now_us = max(self.now_us, at_us)

    def _idle(self, tenant: int) -> int:
        gpus, lendable = self.quotas.get(tenant, (0, 0))
        idle = max(gpus - self.own.get(tenant, 0), 0)
        return idle if lendable is None else min(idle, lendable)

    def _set_rate(self, lender: int, rate: int) -> None:
        now_us = self.now_us
        offset, before, _ = self._lines.get(lender, (0, 0, 0))
        self._lines[lender] = (offset + (before - rate) * now_us, rate, now_us)

    def to_state(self) -> dict[str, Any]:
        """Return the whole state as JSON values; `from_state` continues from it."""
        return {
            "now_us": self.now_us,
            "capacity": self.capacity,
            "quotas": {str(key): list(row) for key, row in self.quotas.items()},
            "own": {str(key): gpus for key, gpus in self.own.items()},
            "sums": {
                str(key): [offset + rate * since_us, since_us, rate]
                for key, (offset, rate, since_us) in self._lines.items()
            },
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> IdleSums:
        """Restore what `to_state` gave."""
        sums = cls()
        sums.now_us = state["now_us"]
        sums.capacity = state["capacity"]
        sums.quotas = {int(key): (gpus, lend) for key, (gpus, lend) in state["quotas"].items()}
        sums.own = {int(key): gpus for key, gpus in state["own"].items()}
        for key, (total, since_us, rate) in state["sums"].items():
            sums._lines[int(key)] = (total - rate * since_us, rate, since_us)
        return sums


def weights_between(before: Mapping[int, int], after: Mapping[int, int]) -> dict[int, int]:
    """Return the weights of a term from its two marks (zeros left out)."""
    return {
        lender: weight
        for lender, total in after.items()
        if (weight := total - before.get(lender, 0))
    }
