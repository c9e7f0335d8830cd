"""Exponentially decayed GPU-time received and deserved per claim: A and F of rule 1.

The pool's sums (`fairness.gpu_time`) do not decay. In this memory, time is divided by marks, 64 per
window. At a mark, both sums are multiplied by exp(-1/64), in fixed point. Between marks, they grow
like the pool's sums. So the memory changes only at marks and when a claim's rates change, not in
each round.

Rounds in which nothing happens are skipped, so the next round may come after a mark. The GPU-time
received up to the mark is then computed from a line. The line starts at the claim's sums when its
rates last changed, and grows with these rates. Nothing changed in the skipped rounds, so the line
is exact. A run without skipped rounds has the same memory.

The memory is plain JSON: {"mark": number of the last mark, "claims": [row, ...]}. Each claim of the
pool, by (tenant, GPU type), has a row with the fields of `DecayedClaim`. Times are in us, GPU-time
in GPU-us.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from evenshare_core.domain.ids import Each, Fields, IdKind, Row
from evenshare_core.fairness.gpu_time import deserved, received
from evenshare_core.policies.evenshare.promises import PROMISE_IDS
from evenshare_core.policies.evenshare.queues import ClaimRow
from evenshare_core.policies.evenshare.restarts import RESTART_IDS

MEMORY_IDS = Fields(
    {
        "mark": None,
        "claims": Each(Row((IdKind.TENANT,))),
        "promises": Each(PROMISE_IDS),
        "restarts": Each(RESTART_IDS),
    }
)
# The parts that a memory has only if they have rows.
PARTS = ("promises", "restarts")

MARKS = 64
# exp(-1 / 64), rounded down to 32 fractional bits.
DECAY, BITS = 4_228_379_999, 32
# After this many marks, every sum has decayed to 0.
FORGOTTEN = 64 * MARKS

Steps = tuple[int, int, int, int]  # start time of the current rates, GPUs held, demand, quota


class DecayedClaim(NamedTuple):
    """A claim's decayed sums at the last mark, the pool's sums at the mark, and its line.

    `received` and `deserved` are A and F at the mark. The line starts at `line_us`, with the pool's
    sums `line_alloc` and `line_fair`, which grow by `held` and `share` GPUs.
    """

    tenant: int
    gpu_type: str
    received: int
    deserved: int
    mark_alloc: int
    mark_fair: int
    line_us: int
    line_alloc: int
    line_fair: int
    held: int
    share: int


class DecayedSums:
    """The decayed sums of all claims of a pool, for one round or kept between rounds.

    `memory` is the input of the next round; a round that loads it gets the same sums.
    """

    def __init__(self, window_us: int) -> None:
        self._step_us = max(1, window_us // MARKS)
        self._rows: dict[tuple[int, str], DecayedClaim] = {}
        self._memory: dict[str, Any] = {}
        self._mark = self._old_mark = -1  # -1 before the first mark
        self._at_us = self._round_us = 0
        self._seen: dict[tuple[int, str], Steps] = {}  # each claim's rates at the last check

    def begin(
        self, memory: dict[str, Any], claims: Iterable[ClaimRow], at_us: int, round_us: int
    ) -> None:
        """Advance the sums to the time of a round.

        `memory` is the memory that the last round returned.
        """
        if memory is not self._memory:
            self._load(memory)
        is_new = self._mark < 0
        self._at_us, self._round_us = at_us, round_us
        self._old_mark = at_us // self._step_us if is_new else self._mark
        self._mark = max(self._old_mark, at_us // self._step_us)
        is_changed = is_new or self._mark != self._old_mark
        rows, seen, is_marked = self._rows, self._seen, is_changed
        for claim in claims:
            key = (claim.tenant, claim.gpu_type)
            steps = (claim.since_us, claim.held, claim.demand, claim.quota)
            if not is_marked and seen.get(key) == steps:
                continue  # the rates have not changed, so the line is still valid
            before = rows.get(key)
            row = before if before is not None else self._first(claim, is_new=is_new)
            row = self._line(claim, self._marked(claim, row))
            seen[key] = steps
            if row is not before:
                rows[key] = row
                is_changed = True
        if is_changed:
            self._memory = {"mark": self._mark, "claims": [list(rows[key]) for key in sorted(rows)]}

    @property
    def next_mark_us(self) -> int:
        return (self._mark + 1) * self._step_us

    @property
    def memory(self) -> dict[str, Any]:
        """Return the memory as plain JSON. The same object is returned until the sums change."""
        return self._memory

    def sums(self, claim: ClaimRow) -> tuple[int, int]:
        """Return A and F of a claim at the time of the round, in GPU-us."""
        row = self._rows[claim.tenant, claim.gpu_type]
        return (
            row.received + received(claim, self._at_us) - row.mark_alloc,
            row.deserved + deserved(claim, self._at_us) - row.mark_fair,
        )

    def _load(self, memory: dict[str, Any]) -> None:
        self._memory, self._seen = without_parts(memory), {}
        self._mark = memory["mark"] if memory else -1
        claims = memory["claims"] if memory else ()
        self._rows = {(row[0], row[1]): DecayedClaim(*row) for row in claims}

    def _first(self, claim: ClaimRow, *, is_new: bool) -> DecayedClaim:
        """Return the row of a claim that has none.

        If the whole memory is new, GPU-time before this round does not count.
        """
        alloc = fair = 0
        if is_new:
            alloc, fair = received(claim, self._at_us), deserved(claim, self._at_us)
        return DecayedClaim(claim.tenant, claim.gpu_type, 0, 0, alloc, fair, 0, alloc, fair, 0, 0)

    def _marked(self, claim: ClaimRow, row: DecayedClaim) -> DecayedClaim:
        if self._mark == self._old_mark:
            return row
        alloc_now, fair_now = received(claim, self._at_us), deserved(claim, self._at_us)
        alloc, fair, last_alloc, last_fair = row[2:6]
        first = max(self._old_mark, self._mark - FORGOTTEN) + 1
        for mark in range(first, self._mark + 1):
            instant_us = self._instant(mark)
            if instant_us < self._at_us:
                span_us = max(0, instant_us - row.line_us)
                at_alloc = min(alloc_now, max(last_alloc, row.line_alloc + row.held * span_us))
                at_fair = min(fair_now, max(last_fair, row.line_fair + row.share * span_us))
            else:
                at_alloc, at_fair = alloc_now, fair_now
            alloc = (alloc + at_alloc - last_alloc) * DECAY >> BITS
            fair = (fair + at_fair - last_fair) * DECAY >> BITS
            last_alloc, last_fair = at_alloc, at_fair
        return row._replace(
            received=alloc, deserved=fair, mark_alloc=last_alloc, mark_fair=last_fair
        )

    def _instant(self, mark: int) -> int:
        """Return the time of the first round at or after a mark, if rounds are not skipped."""
        instant_us, round_us = mark * self._step_us, self._round_us
        return -(-instant_us // round_us) * round_us if round_us else instant_us

    def _line(self, claim: ClaimRow, row: DecayedClaim) -> DecayedClaim:
        """Return the row, with a new line if the claim's sums differ from the old line."""
        share = min(claim.demand, claim.quota)
        alloc, fair = received(claim, self._at_us), deserved(claim, self._at_us)
        span_us = self._at_us - row.line_us
        if (
            (row.held, row.share) == (claim.held, share)
            and alloc == row.line_alloc + row.held * span_us
            and fair == row.line_fair + row.share * span_us
        ):
            return row
        return row._replace(
            line_us=self._at_us, line_alloc=alloc, line_fair=fair, held=claim.held, share=share
        )


def with_parts(memory: dict[str, Any], *rows: list[list[Any]]) -> dict[str, Any]:
    """Return the memory with rows of the other parts; without rows, the memory itself."""
    parts = {name: of_part for name, of_part in zip(PARTS, rows, strict=True) if of_part}
    return {**memory, **parts} if parts else memory


def without_parts(memory: dict[str, Any]) -> dict[str, Any]:
    """Return the memory of the sums; without other parts, the memory itself."""
    if memory.keys().isdisjoint(PARTS):
        return memory
    return {key: value for key, value in memory.items() if key not in PARTS}
