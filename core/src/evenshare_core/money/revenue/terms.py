"""From lease events to closed terms with their lenders' weights: a pure sweep over time.

A term begins when its lease started (the first one) or was renewed, and closes when it is
renewed again or ended. A lease that never started has no usage.

Late events: events carry the order of the pool's writer, and an executor may report a start
or an end after the round that came later in pool time. Observed events wait in `pending`
until a round's instant (the watermark) reaches them, and are then taken in the order of pool
time; so ends reported together, in any order, meet exact integrals. One that is reported
after later ones were taken is charged for its exact times all the same; only for the lenders'
weights it counts from the last of those on, because earlier terms were split with what was
known then.
The result depends on the events alone, never on how they were cut into batches.

A lease's terms carry the remainder of their charges from one to the next, so that rounding never
costs or saves a lease half a micro-credit in all, however short its terms are.

Late rounds: a term is due at its expiry, or when its minimum runtime is over. If no round came
within `late_us` after that, the borrower is charged until the due instant only. Lenders are paid
for all of the time; the operator bears the difference (docs/adr/0232). Events of before this rule
have no `expires_us`, and their terms are charged until they end.

Terms that began under the rule before (docs/adr/0199) are split by the integrals of idle quota,
and charged by themselves: `Sweep(by_integrals=True)` until `change_rule`, and whatever a state of
that time holds open.
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

# A round writes these at its own instant: nothing before it is still to be expected.
ROUND_KINDS = frozenset({"granted", "renewed", "priced"})


# (GPU type, instant, whether it is of integrals) -> (open terms that need it, the mark). None: it
# is made again from the history of idle quota when it is needed.
_Marks = dict[tuple[str, int, bool], tuple[int, Mark | None]]
# So many steps of idle quota are kept at least before those are forgotten that no term needs.
KEPT_STEPS = 1000


class Sweep:
    """Feed it every event of a pool once, in number order; it answers with closed terms.

    `anomalies` collects (event number, what) that contradict the contract: they are skipped,
    and a check reports them.

    `by_integrals`: terms begin under the rule before, until `change_rule`.
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
        # (due instant, lease, term) of open terms that no round has come for; may name closed ones.
        self._due: list[tuple[int, int, int]] = []

    def feed(self, event: Event) -> list[ClosedTerm]:
        """Take the next event; return the terms that are closed by what is known now."""
        at_us = max(event.at_us, self._last_us.get(event.lease, 0))
        if event.lease:
            # A lease's own events keep their order, whatever clocks said.
            self._last_us[event.lease] = at_us
        heapq.heappush(self._pending, (at_us, event.number, event))
        if event.kind in ROUND_KINDS:
            return self.rest(event.at_us)
        return self.rest(self.watermark_us)

    def rest(self, until_us: int) -> list[ClosedTerm]:
        """Take all pending events up to `until_us`: no earlier ones are expected any more."""
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
        """Note the round, or the look of a quiet pool, in the terms that waited for one."""
        while self._due and self._due[0][0] <= self.watermark_us:
            due_us, lease, number = heapq.heappop(self._due)
            term = self._open.get(lease)
            if term is not None and (term.term, term.due_us) == (number, due_us):
                term.round_us = self.watermark_us

    def _await_round(self, lease: int, term: OpenTerm) -> None:
        """Have the first round from the term's due instant on noted; it may be the present one."""
        term.round_us = None
        if term.due_us is None:
            return
        if term.due_us <= self.watermark_us:
            term.round_us = self.watermark_us
        else:
            heapq.heappush(self._due, (term.due_us, lease, term.term))

    def change_rule(self) -> None:
        """Let terms that begin from now on be split and charged by the present rule."""
        self.by_integrals = False

    @property
    def pending_us(self) -> int | None:
        """Instant of the earliest pending event; None without one."""
        return self._pending[0][0] if self._pending else None

    @property
    def running(self) -> dict[tuple[int, int], OpenTerm]:
        """Terms that are not closed: (lease, term) -> its figures."""
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
        # Lenders lent for all of the time: what the borrower is spared, the operator bears.
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
        # Start and end were both reported late: the idle GPUs of this instant decide.
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
        """Return everything that the next batch needs, as JSON values.

        `marks`: [GPU type, instant, open terms, integrals or null].
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
        """Restore what `to_state` gave; an empty state is a new sweep.

        In a state of version 1 all terms that have begun are of the rule before.
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
        # Stored in order, and a sorted list is a heap.
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
