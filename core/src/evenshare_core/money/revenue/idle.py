"""Gain-as-you-contribute: lenders are paid for a borrowed term by their parts of idle quota.

Source: Astraea-online (TC 2022), eq. (2) and (11). In each slot, owner u earns the share (q_u - own
use_u) / sum over owners of the borrower's payment. Between two changes of idle quota that share is
constant, and a term's price and borrowed GPUs are fixed. So an owner's part of the charge is the
sum over the intervals of (own idle / total idle) x length, divided by the term's length. The sum is
exact; money is rounded once per term instead of once per slot.

| paper        | here                                             | unit             |
|--------------|--------------------------------------------------|------------------|
| q_u          | `quotas[u][0]`: effective quota of the type      | GPUs             |
| own use_u    | `own[u]`: own GPUs of u's running terms          | GPUs             |
| q_u - use_u  | `rates()[u]`: idle, at most what u lends         | GPUs             |
| a(t) - sum   | capacity - sum of quotas: the operator's         | GPUs             |
| sum over t of (q_u - use_u) / a | `IdleSums.mark`: cumulative; a term's parts are the difference |
|              | of two marks and sum to its length               | us / scale       |

Method: with C(t) the integral of 1 / total idle, a lender's sum grows by its idle GPUs x the growth
of C. All numerators are integers over one denominator, `scale`: the least common multiple of the
totals of idle GPUs during any interval. In a large pool `scale` has many digits. So the state
between two batches has the steps of idle quota since the oldest open term, from which all sums are
rebuilt.

Departures:

- A term replaces slots (above).
- `lend_limit` and RESERVE limit the idle quota that counts; quota that is not lent earns
  nothing.
- Unallocated capacity earns for the operator. The operator also gets the charge for time
  without any lendable idle quota.

A tenant may be among its own lenders and pay itself, as in the paper.

Terms that began before this rule were split by the integrals of idle quota (`IdleSums.integrals`).
There, time with more idle quota has more weight (docs/adr/0199).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from math import gcd, lcm
from operator import itemgetter
from typing import Any, NamedTuple

from evenshare_core.money.fixed_point import largest_remainder

# The operator's key among lenders; tenant ids start at 1.
OPERATOR = 0
# A quota and its lendable part: (gpus, maximum or None for all). RESERVE lends (gpus, 0).
LendableQuota = tuple[int, int | None]


# If the sum of the weights in lowest terms is larger, whole parts of this limit are recorded.
WEIGHT_LIMIT = 10**18


class ChargeShare(NamedTuple):
    """A lender's share of a term: its weight, its money, and the GPU-time that it lent."""

    lender: int
    weight: int
    amount_micro: int
    lent_gpu_us: int


def split_charge(
    amount_micro: int,
    borrowed_gpu_us: int,
    weights: Mapping[int, int],
    *,
    noted: Mapping[int, int] | None = None,
) -> tuple[ChargeShare, ...]:
    """Split a term's charge and its borrowed GPU-time over lenders by weight, exactly.

    The parts sum to the inputs, each within one unit of its exact share. Lenders of weight 0 are
    left out. If all weights are 0, the operator gets everything. `noted` has the weights to record
    in the shares, if they differ from `weights`.

    Raises:
        ValueError: an amount or a weight is negative.
    """
    lenders = _lenders(weights)
    if not lenders:
        return (ChargeShare(OPERATOR, 0, amount_micro, borrowed_gpu_us),)
    present = [weights[lender] for lender in lenders]
    amounts = largest_remainder(amount_micro, present)
    lent = largest_remainder(borrowed_gpu_us, present)
    if noted is not None:
        present = [noted[lender] for lender in lenders]
    return tuple(map(ChargeShare, lenders, present, amounts, lent))


def split_amount(amount_micro: int, weights: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return (lender, money) of a charge: the amounts of `split_charge`, but faster.

    Raises:
        ValueError: an amount or a weight is negative.
    """
    lenders = _lenders(weights)
    if not lenders:
        return [(OPERATOR, amount_micro)]
    amounts = largest_remainder(amount_micro, [weights[lender] for lender in lenders])
    return list(zip(lenders, amounts, strict=True))


def _lenders(weights: Mapping[int, int]) -> list[int]:
    """Return the lenders with a weight, in the order of ties: by tenant id, the operator last."""
    lenders = sorted([lender for lender, weight in weights.items() if weight])
    if lenders and lenders[0] == OPERATOR:
        lenders.append(lenders.pop(0))
    return lenders


class Mark(NamedTuple):
    """Each lender's sum up to an instant, in 1/scale of a unit; zeros are left out."""

    scale: int
    sums: dict[int, int]


class _Clock(NamedTuple):
    """The integral C at an instant, in 1/scale; from then on the total idle quota is `total`.

    `alone_us` is the time without any idle quota so far.
    """

    from_us: int
    scale: int
    clock: int
    alone_us: int
    total: int


# (from, scale, offset, rate) of a lender: from that instant on, its sum is offset + rate x C.
_Past = tuple[int, int, int, int]
# (offset, rate, since) of a lender: its sum is offset + rate x C, its integral since + rate x t.
_Line = tuple[int, int, int]
_FROM = itemgetter(0)


class IdleSums:
    """Sums of lendable idle quota of one GPU type, advanced by timed changes.

    Between changes every tenant's idle quota and their total are constant. So a change costs O(1),
    or O(tenants) if the total has a new divisor, and a mark costs O(tenants). Time never runs
    backwards: an earlier instant counts as the present one (see `terms`, "Late events"). With
    `has_history` every step is kept, for `mark_at` and `to_state`.
    """

    def __init__(self, *, has_history: bool = False) -> None:
        self.now_us = 0
        self.capacity = 0
        self.quotas: dict[int, LendableQuota] = {}
        self.own: dict[int, int] = {}
        self.steps = 0  # the number of steps in the history
        self._total = 0  # lendable idle GPUs of all lenders
        self._scale = 1
        self._clock = 0  # C x scale
        self._alone_us = 0  # time without any idle quota, which counts for the operator
        self._lines: dict[int, _Line] = {}
        self._has_history = has_history
        self._past: dict[int, list[_Past]] = {}
        self._clocks: list[_Clock] = []

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

    def mark(self, at_us: int) -> Mark:
        """Return each lender's sum of own idle / total idle up to `at_us`, in microseconds.

        The sums of all lenders together grow by the elapsed time.
        """
        self._advance(at_us)
        clock = self._clock
        sums = {
            lender: total
            for lender, (offset, rate, _) in self._lines.items()
            if (total := offset + rate * clock)
        }
        return self._marked(sums, self._alone_us)

    def mark_at(self, at_us: int) -> Mark:
        """Return what `mark` would have returned at an earlier time that the history covers."""
        if at_us >= self.now_us:
            return self.mark(at_us)
        scale = self._scale
        past = self._clocks[bisect_right(self._clocks, at_us, key=_FROM) - 1]
        clock, alone_us = past.clock * (scale // past.scale), past.alone_us
        if past.total:
            clock += (at_us - past.from_us) * (scale // past.total)
        else:
            alone_us += at_us - past.from_us
        sums = {}
        for lender, lines in self._past.items():
            index = bisect_right(lines, at_us, key=_FROM)
            if index:
                _, of_scale, offset, rate = lines[index - 1]
                if of_scale != scale:
                    offset *= scale // of_scale
                if total := offset + rate * clock:
                    sums[lender] = total
        return self._marked(sums, alone_us)

    def integrals(self, at_us: int) -> Mark:
        """Return each lender's integral of idle quota up to `at_us`, in GPU-microseconds."""
        self._advance(at_us)
        now_us = self.now_us
        sums = {
            lender: total
            for lender, (_, rate, since) in self._lines.items()
            if (total := since + rate * now_us)
        }
        return Mark(1, sums)

    def rates(self) -> dict[int, int]:
        """Return each lender's lendable idle GPUs now."""
        return {lender: rate for lender, (_, rate, _) in self._lines.items() if rate}

    def rates_since(self, lender: int) -> list[tuple[int, int]]:
        """Return (instant, idle GPUs) of a lender in order, from the start of the history."""
        return [(from_us, rate) for from_us, _, _, rate in self._past.get(lender, [])]

    def totals_since(self) -> list[tuple[int, int]]:
        """Return (instant, idle GPUs of all lenders) in order, up to the present."""
        totals = [(clock.from_us, clock.total) for clock in self._clocks]
        return [*totals, (self.now_us, self._total)]

    def _marked(self, sums: dict[int, int], alone_us: int) -> Mark:
        if alone_us:
            sums[OPERATOR] = sums.get(OPERATOR, 0) + alone_us * self._scale
        return Mark(self._scale, sums)

    def _advance(self, at_us: int) -> None:
        span_us = at_us - self.now_us
        if span_us <= 0:
            return
        total = self._total
        if self._has_history and not (self._clocks and self._clocks[-1].total == total):
            self._clocks.append(
                _Clock(self.now_us, self._scale, self._clock, self._alone_us, total)
            )
        self.now_us = at_us
        if not total:
            self._alone_us += span_us
            return
        if self._scale % total:
            self._refine(total)
        self._clock += span_us * (self._scale // total)

    def _refine(self, total: int) -> None:
        """Make the scale a multiple of `total`."""
        factor = total // gcd(self._scale, total)
        self._scale *= factor
        self._clock *= factor
        for lender, (offset, rate, since) in self._lines.items():
            self._lines[lender] = (offset * factor, rate, since)

    def _idle(self, tenant: int) -> int:
        gpus, lendable = self.quotas.get(tenant, (0, 0))
        idle = max(gpus - self.own.get(tenant, 0), 0)
        return idle if lendable is None else min(idle, lendable)

    def _set_rate(self, lender: int, rate: int) -> None:
        offset, before, since = self._lines.get(lender, (0, 0, 0))
        fall = before - rate
        offset += fall * self._clock
        self._lines[lender] = (offset, rate, since + fall * self.now_us)
        self._total -= fall
        if self._has_history:
            self.steps += 1
            past = self._past.setdefault(lender, [])
            past.append((self.now_us, self._scale, offset, rate))

    def to_state(self, since_us: int, *, has_integrals: bool = False) -> dict[str, Any]:
        """Return the state for marks from `since_us` on, as JSON values.

        `rates` has the idle GPUs at `since_us`, `steps` the later [instant, {lender: idle GPUs}].
        """
        since_us = min(since_us, self.now_us)
        rates: dict[str, int] = {}
        steps: dict[int, dict[str, int]] = {}
        for lender, lines in sorted(self._past.items()):
            for from_us, _, _, rate in lines:
                if from_us <= since_us:
                    rates[str(lender)] = rate
                else:
                    steps.setdefault(from_us, {})[str(lender)] = rate
        state: dict[str, Any] = {
            "now_us": self.now_us,
            "capacity": self.capacity,
            "quotas": {str(key): list(row) for key, row in self.quotas.items()},
            "own": {str(key): gpus for key, gpus in self.own.items()},
            "since_us": since_us,
            "rates": {lender: rate for lender, rate in rates.items() if rate},
            "steps": [[at_us, steps[at_us]] for at_us in sorted(steps)],
        }
        if has_integrals:
            sums = self.integrals(self.now_us).sums
            state["integrals"] = {str(key): total for key, total in sums.items()}
        return state

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> IdleSums:
        """Restore a state of `to_state`; the sums start at its `since_us`."""
        sums = cls(has_history=True)
        sums.now_us = state["since_us"]
        sums.capacity = state["capacity"]
        sums.quotas = {int(key): (gpus, lend) for key, (gpus, lend) in state["quotas"].items()}
        sums.own = {int(key): gpus for key, gpus in state["own"].items()}
        # Set the final scale first, so that no step has to rescale earlier sums.
        sums._scale = lcm(*_totals(state["rates"], (rates for _, rates in state["steps"])))
        for at_us, rates in [[sums.now_us, state["rates"]], *state["steps"]]:
            sums._advance(at_us)
            for lender, rate in rates.items():
                sums._set_rate(int(lender), rate)
        sums._advance(state["now_us"])
        integrals = {int(key): total for key, total in state.get("integrals", {}).items()}
        for lender in sums._lines.keys() | integrals.keys():
            offset, rate, _ = sums._lines.get(lender, (0, 0, 0))
            sums._lines[lender] = (offset, rate, integrals.get(lender, 0) - rate * sums.now_us)
        return sums

    @classmethod
    def from_integrals(cls, state: Mapping[str, Any]) -> IdleSums:
        """Restore a state stored before `mark` existed, which has only integrals."""
        now_us = state["now_us"]
        integrals = {
            key: total + rate * (now_us - since_us)
            for key, (total, since_us, rate) in state["sums"].items()
        }
        rates = {key: rate for key, (_, _, rate) in state["sums"].items()}
        present = {"since_us": now_us, "rates": rates, "steps": [], "integrals": integrals}
        return cls.from_state({**state, **present})


def _totals(rates: Mapping[str, int], steps: Iterable[Mapping[str, int]]) -> set[int]:
    """Return the distinct totals of idle GPUs after each step, without 0."""
    now = dict(rates)
    total = sum(now.values())
    totals = {total}
    for step in steps:
        for lender, rate in step.items():
            total += rate - now.get(lender, 0)
            now[lender] = rate
        totals.add(total)
    return totals - {0}


def weights_between(before: Mark, after: Mark) -> dict[int, int]:
    """Return a term's nonzero weights from the marks at its start and end, in 1/`after.scale`."""
    factor = after.scale // before.scale
    sums = before.sums
    if factor > 1:
        sums = {lender: total * factor for lender, total in sums.items()}
    return {
        lender: weight
        for lender, total in after.sums.items()
        if (weight := total - sums.get(lender, 0))
    }


def plain_weights(weights: Mapping[int, int]) -> dict[int, int]:
    """Return the weights to record, in the same ratio: in lowest terms, if these are short.

    Otherwise return whole parts of `WEIGHT_LIMIT`, by largest remainder. These 18 places give the
    same shares as the exact weights, to the micro-credit.
    """
    weight_sum = sum(weights.values())
    divisor = gcd(weight_sum, *weights.values())
    if divisor <= 1 and weight_sum <= WEIGHT_LIMIT:
        return dict(weights)
    if weight_sum <= WEIGHT_LIMIT * divisor:
        return {lender: weight // divisor for lender, weight in weights.items()}
    lenders = _lenders(weights)
    parts = largest_remainder(WEIGHT_LIMIT, [weights[lender] for lender in lenders])
    return dict(zip(lenders, parts, strict=True))
