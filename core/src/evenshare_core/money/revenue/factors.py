"""The factors of an income: own and total idle quota in each interval of a term.

`Sweep` sums parts of idle quota and keeps no intervals. `FactorSweep` takes the same events. For
the requested terms it records the span that counts for the lenders' weights, and the steps of idle
quota in it. From these, any reader can compute a lender's weight exactly (`part_of`): the sum over
the intervals of (own idle / total idle) x length.

`FactorSweep` need not start with the pool's first event. It needs the idle quota at the start of
the first requested term. This follows from the quotas of that instant and all events of the leases
that had not ended by then (`docs/adr/0199`).
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import lcm
from operator import itemgetter
from typing import NamedTuple

from evenshare_core.money.revenue.idle import IdleSums
from evenshare_core.money.revenue.records import ClosedTerm, Event, OpenTerm
from evenshare_core.money.revenue.terms import Sweep

TermKey = tuple[int, int]  # (lease, term)
OPENING = ("granted", "renewed")
_FROM = itemgetter(0)


class IdleStep(NamedTuple):
    """Lendable idle GPUs of one lender, and of all lenders together, from an instant on."""

    at_us: int
    own: int
    total: int


class CountedSpan(NamedTuple):
    """The part of a term's time that counts for its lenders' weights.

    It is the time for which the GPUs were held, unless its start or end was reported after later
    events. Then the instant of the last of these events replaces it. If both were reported late,
    the span is empty, and `rates` has that instant's idle quota by lender; else None.
    """

    gpu_type: str
    from_us: int
    until_us: int
    rates: dict[int, int] | None = None

    def of(self, lender: int) -> IdleStep | None:
        """Return the idle GPUs of a lender and of all lenders at the time that decides.

        Return None if the span is not empty.
        """
        if self.rates is None:
            return None
        return IdleStep(self.from_us, self.rates.get(lender, 0), sum(self.rates.values()))


class FactorSweep(Sweep):
    """A sweep that records the spans of the requested terms, and keeps all steps of idle quota.

    Terms that were not requested close without charges.
    """

    def __init__(self, wanted: Iterable[TermKey]) -> None:
        super().__init__()
        self.missing = set(wanted)
        self.spans: dict[TermKey, CountedSpan] = {}
        self.closed: dict[TermKey, ClosedTerm] = {}

    def feed(self, event: Event) -> list[ClosedTerm]:
        """Take the next event.

        Borrowed GPUs of terms that were not requested count as 0, because they do not change idle
        quota.
        """
        if event.kind in OPENING and (event.lease, event.term) not in self.missing:
            event = replace(event, data={**event.data, "borrowed": 0})
        return super().feed(event)

    def steps(self, gpu_type: str, lender: int, from_us: int, until_us: int) -> list[IdleStep]:
        """Return the steps of idle quota in [from_us, until_us); the first one is at `from_us`.

        Consecutive steps differ.
        """
        sums = self._types.get(gpu_type)
        if sums is None or until_us <= from_us:
            return []
        return idle_steps(sums, lender, from_us, until_us)

    def _close(self, event: Event, term: OpenTerm, at_us: int) -> ClosedTerm:
        key = (event.lease, term.term)
        if key not in self.missing or term.starts_us is None:
            return super()._close(event, term, at_us)
        sums = self._sums(term.gpu_type)
        rates = sums.rates()
        closed = super()._close(event, term, at_us)
        self.missing.discard(key)
        self.closed[key] = closed
        is_instant = sums.now_us == term.mark_us
        self.spans[key] = CountedSpan(
            term.gpu_type, term.mark_us, sums.now_us, rates if is_instant else None
        )
        return closed

    def _forget(self, gpu_type: str) -> IdleSums:
        """Keep all steps, because they are the result."""
        return self._types[gpu_type]


def idle_steps(sums: IdleSums, lender: int, from_us: int, until_us: int) -> list[IdleStep]:
    """Return the steps of a history of idle quota in [from_us, until_us)."""
    own = sums.rates_since(lender)
    total = sums.totals_since()
    instants = {from_us}
    for rows in (own, total):
        first = bisect_right(rows, from_us, key=_FROM)
        last = bisect_right(rows, until_us - 1, key=_FROM)
        instants.update(at_us for at_us, _ in rows[first:last])
    steps: list[IdleStep] = []
    for at_us in sorted(instants):
        step = IdleStep(at_us, _at(own, at_us), _at(total, at_us))
        if not steps or steps[-1][1:] != step[1:]:
            steps.append(step)
    return steps


def _at(rows: Sequence[tuple[int, int]], at_us: int) -> int:
    index = bisect_right(rows, at_us, key=_FROM)
    return rows[index - 1][1] if index else 0


def part_of(
    steps: Sequence[IdleStep], from_us: int, until_us: int, *, is_operator: bool = False
) -> Fraction:
    """Return a lender's part of the time from `from_us` to `until_us`, in microseconds, exactly.

    The part is the sum over the intervals of (own idle / total idle) x length. It is the lender's
    weight in the term; all lenders' weights sum to the length. Time without any idle quota counts
    for the operator.

    Raises:
        ValueError: the steps do not reach back to `from_us`.
    """
    own_us: dict[int, int] = defaultdict(int)  # grouped by total, so that fewer fractions are added
    alone_us = 0
    for at_us, ends_us, step in _intervals(steps, from_us, until_us):
        if step.total:
            own_us[step.total] += step.own * (ends_us - at_us)
        else:
            alone_us += ends_us - at_us
    scale = lcm(*own_us)
    part = Fraction(sum(us * (scale // total) for total, us in own_us.items()), scale)
    return part + alone_us if is_operator else part


def integrals_of(steps: Sequence[IdleStep], from_us: int, until_us: int) -> tuple[int, int]:
    """Return the integrals of own and total idle quota in GPU-microseconds, by the former rule.

    Raises:
        ValueError: the steps do not reach back to `from_us`.
    """
    own = total = 0
    for at_us, ends_us, step in _intervals(steps, from_us, until_us):
        own += step.own * (ends_us - at_us)
        total += step.total * (ends_us - at_us)
    return own, total


def _intervals(
    steps: Sequence[IdleStep], from_us: int, until_us: int
) -> Iterable[tuple[int, int, IdleStep]]:
    """Yield (start, end, idle quota) of each interval between two steps, cut to the span."""
    first = bisect_right(steps, from_us, key=_FROM) - 1
    if first < 0:
        raise ValueError("the steps do not reach back to the beginning")
    for index in range(first, len(steps)):
        step = steps[index]
        if step.at_us >= until_us:
            return
        ends_us = steps[index + 1].at_us if index + 1 < len(steps) else until_us
        yield max(step.at_us, from_us), min(ends_us, until_us), step
