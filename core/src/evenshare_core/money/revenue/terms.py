"""From lease events to closed terms with their lenders' weights: a pure sweep over time.

A term begins when its lease started (the first term) or was renewed. It closes when the lease is
renewed again or ends. A lease that never started has no usage.

Late events: events have the order of the pool's writer. An executor may report a start or an end
after a round that is later in pool time. Observed events wait in `pending` until a round's instant
(the watermark) reaches them, and are then taken in the order of pool time. So ends that are
reported together get exact integrals in any order. An event reported after later events were taken
is charged for its exact times. For the lenders' weights it counts from the last of those events on,
because earlier terms were already split.

The result depends only on the events, never on the batches in which they arrive.

A lease's terms carry the remainder of their charges to the next term. So rounding never costs or
saves a lease more than half a micro-credit in total, however short its terms are.

Late rounds: a term is due at its expiry, or when its minimum runtime is over. If no round came
within `late_us` after that, the borrower is charged only until the due instant. Lenders are paid
for the whole time, and the operator pays the difference (docs/money.md). Events from before this
rule have no `expires_us`, and their terms are charged until they end.

Terms that began under the former rule (docs/adr/0199) are split by the integrals of idle quota, and
charged without remainders. These are the terms of `Sweep(by_integrals=True)` before `change_rule`,
and the open terms of a state stored at that time.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

from evenshare_core.money.revenue.idle import (
    ChargeShare,
    IdleSums,
    Mark,
    plain_weights,
    split_charge,
    weights_between,
)
from evenshare_core.money.revenue.records import ClosedTerm, Event, OpenTerm, opened_term

# A round writes these events at its own instant: no earlier event is expected after them.
ROUND_KINDS = frozenset({"granted", "renewed", "priced"})


# (GPU type, instant, whether the mark is of integrals): (number of open terms that need the mark,
# the mark). A mark of `None` is rebuilt from the history of idle quota when needed.
_Marks = dict[tuple[str, int, bool], tuple[int, Mark | None]]
# With at most this many steps of idle quota, none is forgotten.
KEPT_STEPS = 1000


class Sweep:
    """A sweep that takes every event of a pool once, in number order, and returns closed terms.

    `anomalies` collects (event number, text) of events that violate the contract. They are skipped,
    and a check reports them. With `by_integrals`, terms begin under the former rule until
    `change_rule`.
    """

    def __init__(self, *, by_integrals: bool = False) -> None:
        self.by_integrals = by_integrals
        self.watermark_us = 0
        self.anomalies: list[tuple[int, str]] = []
        self._types: dict[str, IdleSums] = {}
        self._kept: dict[str, int] = {}
        self._open: dict[int, OpenTerm] = {}
        self._marks: _Marks = {}
        self._pending: list[tuple[int, int, Event]] = []
        self._last_us: dict[int, int] = {}
        # (due instant, lease, term) of terms that wait for a round; some may have closed since.
        self._due: list[tuple[int, int, int]] = []

    def feed(self, event: Event) -> list[ClosedTerm]:
        """Take the next event; return the terms that it allows to close."""
        at_us = max(event.at_us, self._last_us.get(event.lease, 0))
        if event.lease:
            # A lease's own events keep their order, whatever their clocks show.
            self._last_us[event.lease] = at_us
        heapq.heappush(self._pending, (at_us, event.number, event))
        if event.kind in ROUND_KINDS:
            return self.rest(event.at_us)
        return self.rest(self.watermark_us)

    def rest(self, until_us: int) -> list[ClosedTerm]:
        """Take all pending events up to `until_us`; no earlier event is expected any more."""
        if until_us > self.watermark_us:
            self.watermark_us = until_us
            self._note_round()
        closed: list[ClosedTerm] = []
        while self._pending and self._pending[0][0] <= self.watermark_us:
            at_us, _, event = heapq.heappop(self._pending)
            term = self._take(event, at_us)
            if term is not None:
                closed.append(term)
        return closed

    def _note_round(self) -> None:
        """Record a round, or a poll of a quiet pool, in the terms that waited for it."""
        while self._due and self._due[0][0] <= self.watermark_us:
            due_us, lease, number = heapq.heappop(self._due)
            term = self._open.get(lease)
            if term is not None and (term.term, term.due_us) == (number, due_us):
                term.round_us = self.watermark_us

    def _await_round(self, lease: int, term: OpenTerm) -> None:
        """Record that a term waits for the first round, maybe this one, from its due time on."""
        term.round_us = None
        if term.due_us is None:
            return
        if term.due_us <= self.watermark_us:
            term.round_us = self.watermark_us
        else:
            heapq.heappush(self._due, (term.due_us, lease, term.term))

    def change_rule(self) -> None:
        """Apply the current rule to terms that begin from now on."""
        self.by_integrals = False

    @property
    def pending_us(self) -> int | None:
        """The instant of the earliest pending event; None if there is no pending event."""
        return self._pending[0][0] if self._pending else None

    @property
    def running(self) -> dict[tuple[int, int], OpenTerm]:
        return {(lease, term.term): term for lease, term in self._open.items()}

    @property
    def awaited(self) -> list[int]:
        """Leases whose grant is pending."""
        return [event.lease for _, _, event in self._pending if event.kind == "granted"]

    def _take(self, event: Event, at_us: int) -> ClosedTerm | None:
        if event.kind == "entitled":
            self._entitle(event, at_us)
        elif event.kind == "granted":
            term = self._open[event.lease] = opened_term(event)
            self._await_round(event.lease, term)
        elif event.kind == "stop_asked":
            asked = self._open.get(event.lease)
            if asked is not None and asked.asked_us is None:
                asked.asked_us = at_us
        elif event.kind in ("started", "renewed", "ended"):
            present = self._open.get(event.lease)
            if present is None:
                self._last_us.pop(event.lease, None)
                self.anomalies.append((event.number, f"{event.kind} without a grant"))
            elif event.kind == "started":
                self._start(event, present, at_us)
            elif event.kind == "renewed":
                return self._renew(event, present, at_us)
            else:
                return self._end(event, present, at_us)
        return None

    def _entitle(self, event: Event, at_us: int) -> None:
        rows = {
            int(tenant): (int(gpus), None if lendable is None else int(lendable))
            for tenant, (gpus, lendable) in event.data["quotas"].items()
        }
        self._sums(event.data["gpu_type"]).entitle(at_us, int(event.data["capacity"]), rows)

    def _start(self, event: Event, present: OpenTerm, at_us: int) -> None:
        if present.starts_us is not None:
            self.anomalies.append((event.number, "started twice"))
            return
        self._begin(present, at_us)
        until_us = at_us + present.protected_us
        if present.due_us is not None and until_us > present.due_us:
            present.due_us = until_us
            self._await_round(event.lease, present)

    def _renew(self, event: Event, present: OpenTerm, at_us: int) -> ClosedTerm:
        closed = self._close(event, present, at_us)
        following = opened_term(event)
        following.carried = closed.rest
        self._open[event.lease] = following
        self._await_round(event.lease, following)
        if present.starts_us is not None:
            self._begin(following, at_us)
        return closed

    def _end(self, event: Event, present: OpenTerm, at_us: int) -> ClosedTerm:
        if event.data.get("started") and present.starts_us is None:
            self.anomalies.append((event.number, "ended as started, but no start was seen"))
        closed = self._close(event, present, at_us)
        del self._open[event.lease]
        self._last_us.pop(event.lease, None)
        return closed

    def _begin(self, term: OpenTerm, at_us: int) -> None:
        term.starts_us = at_us
        if self.by_integrals:
            term.carried = None
        sums = self._sums(term.gpu_type)
        if term.borrowed:
            mark = self._mark(term, at_us)
            term.mark_us = sums.now_us
            key = (term.gpu_type, term.mark_us, term.by_integrals)
            self._marks[key] = (self._marks.get(key, (0, mark))[0] + 1, mark)
        sums.use(at_us, term.tenant, term.own)

    def _close(self, event: Event, term: OpenTerm, at_us: int) -> ClosedTerm:
        held_us = 0 if term.starts_us is None else at_us - term.starts_us
        until_us = term.charged_until_us(at_us)
        amount, rest = term.charged(held_us - (at_us - until_us) if held_us else 0)
        # The lenders lent their GPUs for the whole time, so the operator pays what the borrower
        # does not pay.
        full = amount if until_us == at_us else term.charged(held_us)[0]
        shares: tuple[ChargeShare, ...] = ()
        if term.starts_us is not None:
            if term.borrowed:
                weights = self._weights(term, at_us)
                noted = weights if term.by_integrals else plain_weights(weights)
                shares = split_charge(full, term.borrowed * held_us, weights, noted=noted)
            self._sums(term.gpu_type).use(at_us, term.tenant, -term.own)
        return ClosedTerm(
            lease=event.lease,
            job=term.job,
            tenant=term.tenant,
            gpu_type=term.gpu_type,
            term=term.term,
            own=term.own,
            borrowed=term.borrowed,
            price_micro=term.price_micro,
            starts_us=term.starts_us,
            ends_us=at_us,
            event=event.number,
            amount_micro=amount,
            carried=term.carried,
            rest=rest,
            shares=shares,
            charged_until_us=until_us,
            borne_micro=full - amount,
        )

    def _weights(self, term: OpenTerm, at_us: int) -> dict[int, int]:
        sums = self._sums(term.gpu_type)
        after = self._mark(term, at_us)
        key = (term.gpu_type, term.mark_us, term.by_integrals)
        users, before = self._marks[key]
        if before is None:
            before = sums.mark_at(term.mark_us)
        if users == 1:
            del self._marks[key]
        else:
            self._marks[key] = (users - 1, before)
        # Start and end were both reported late, so the idle GPUs at this time decide.
        is_instant = sums.now_us == term.mark_us
        return sums.rates() if is_instant else weights_between(before, after)

    def _mark(self, term: OpenTerm, at_us: int) -> Mark:
        sums = self._sums(term.gpu_type)
        _, known = self._marks.get(
            (term.gpu_type, max(at_us, sums.now_us), term.by_integrals), (0, None)
        )
        if known is not None:
            return known
        return sums.integrals(at_us) if term.by_integrals else sums.mark(at_us)

    def _sums(self, gpu_type: str) -> IdleSums:
        sums = self._types.get(gpu_type)
        if sums is None:
            sums = self._types[gpu_type] = IdleSums(has_history=True)
        elif sums.steps > self._kept.get(gpu_type, KEPT_STEPS):
            sums = self._forget(gpu_type)
        return sums

    def _forget(self, gpu_type: str) -> IdleSums:
        """Forget the steps of idle quota that no open term needs."""
        sums = IdleSums.from_state(self._type_state(gpu_type))
        self._types[gpu_type] = sums
        self._kept[gpu_type] = max(KEPT_STEPS, 2 * sums.steps)
        for key, (users, _) in self._marks.items():
            if key[0] == gpu_type and not key[2]:
                self._marks[key] = (users, None)
        return sums

    def _type_state(self, gpu_type: str) -> dict[str, Any]:
        of_type = [key for key in self._marks if key[0] == gpu_type]
        sums = self._types[gpu_type]
        since_us = min((at_us for _, at_us, former in of_type if not former), default=sums.now_us)
        return sums.to_state(since_us, has_integrals=any(former for _, _, former in of_type))

    def to_state(self) -> dict[str, Any]:
        """Return the complete state for the next batch, as JSON values.

        `marks` has [GPU type, instant, open terms, integrals or null].
        """
        return {
            "version": 2,
            "watermark_us": self.watermark_us,
            "types": {name: self._type_state(name) for name in self._types},
            "open": {str(lease): term.row() for lease, term in self._open.items()},
            "marks": [
                [name, at_us, users, _integrals(mark) if by_integrals else None]
                for (name, at_us, by_integrals), (users, mark) in self._marks.items()
            ],
            "pending": [_pending_row(at_us, event) for at_us, _, event in sorted(self._pending)],
            "last_us": {str(lease): at_us for lease, at_us in self._last_us.items()},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Sweep:
        """Restore a state of `to_state`; an empty state gives a new sweep.

        In a state of version 1, all terms that have started are under the former rule.
        """
        sweep = cls()
        if not state:
            return sweep
        is_former = state["version"] == 1
        sweep.watermark_us = state["watermark_us"]
        restore = IdleSums.from_integrals if is_former else IdleSums.from_state
        sweep._types = {name: restore(row) for name, row in state["types"].items()}
        sweep._open = {int(lease): OpenTerm(*row) for lease, row in state["open"].items()}
        if is_former:
            for term in sweep._open.values():
                term.carried = None if term.starts_us is not None else 0
        for name, at_us, users, integrals in state["marks"]:
            mark = None
            if integrals is not None:
                mark = Mark(1, {int(key): total for key, total in integrals.items()})
            sweep._marks[name, at_us, mark is not None] = (users, mark)
        # A stored list is sorted, and a sorted list is a heap.
        sweep._pending = [(row[0], row[1], Event(*row[1:])) for row in state["pending"]]
        sweep._last_us = {int(lease): at_us for lease, at_us in state["last_us"].items()}
        sweep._due = [
            (term.due_us, lease, term.term)
            for lease, term in sweep._open.items()
            if term.due_us is not None and term.round_us is None
        ]
        heapq.heapify(sweep._due)
        return sweep


def _integrals(mark: Mark | None) -> dict[str, int]:
    return {} if mark is None else {str(key): total for key, total in mark.sums.items()}


def _pending_row(at_us: int, event: Event) -> list[Any]:
    return [at_us, *(getattr(event, name) for name in Event.__slots__)]
