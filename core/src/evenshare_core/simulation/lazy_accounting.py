"""GPU-time sums that catch up with the rounds when they are read, exactly.

`fairness.gpu_time` floors a class integral at the end of each round's interval, so even an
unchanged claim must process every round. Here the instants of rounds are stored as runs of equal
spans, and a claim processes the missed rounds when it changes or is read. Sums without a floor
advance over the whole stretch at once. So does the integral of a class that deserves its whole
demand.
"""

from evenshare_core.domain.snapshot import ClaimService
from evenshare_core.fairness.gpu_time import ClaimSums


class RoundInstants:
    """The instants of rounds: the latest instant, and runs of [span in us, number of rounds]."""

    __slots__ = ("last_us", "runs")

    def __init__(self, at_us: int) -> None:
        self.last_us = at_us
        self.runs: list[list[int]] = [[0, 0]]

    def add(self, at_us: int, count: int = 1) -> None:
        """Add `count` rounds at equal spans, the last at `at_us`."""
        span_us = at_us - self.last_us
        if count > 1:
            span_us //= count
        if span_us <= 0:
            return
        self.last_us = at_us
        last = self.runs[-1]
        if last[0] == span_us:
            last[1] += count
        else:
            self.runs.append([span_us, count])


class LazyClaim(ClaimSums):
    """A claim that knows the last round it has processed."""

    __slots__ = ("_count", "_index", "_round_us", "_rounds")

    def __init__(self, row: ClaimService, rounds: RoundInstants) -> None:
        super().__init__(row)
        self._rounds = rounds
        self._note()

    def _note(self) -> None:
        rounds = self._rounds
        # the last processed round; at first, the last round before the claim was created
        self._round_us = rounds.last_us
        self._index = len(rounds.runs) - 1
        self._count = rounds.runs[-1][1]

    def advance(self, at_us: int) -> None:
        """Add the intervals since the last change, one for each round since then."""
        last_us = self._rounds.last_us
        if last_us > self._round_us:
            missed = self._missed()
            next_us = self._round_us + missed[0][0]
            ClaimSums.advance(self, next_us)
            missed[0][1] -= 1
            if last_us > next_us:
                self._skip(missed, last_us - next_us)
                self.since_us = last_us
            self._note()
        ClaimSums.advance(self, at_us)

    def _missed(self) -> list[list[int]]:
        """Return the runs of missed rounds; never empty, and the first run is a copy."""
        runs, index = self._rounds.runs, self._index
        span_us, count = runs[index]
        if count > self._count:
            return [[span_us, count - self._count], *runs[index + 1 :]]
        return [runs[index + 1][:], *runs[index + 2 :]]

    def _skip(self, runs: list[list[int]], total_us: int) -> None:
        """Do the work of `advance` for all spans at once; `total_us` is their sum."""
        share = min(self.demand, self.quota)  # (8)
        self.alloc_gpu_us += self.held * total_us  # (11)
        self.fair_gpu_us += share * total_us  # (9)
        self.entitled_gpu_us += self.quota * total_us  # (16)
        weights = self.weights
        for (demand, weight), row in self.classes.items():
            weighted = share * weight
            if weighted >= demand * weights:  # (14): its whole demand, so nothing is rounded
                row.fair_gpu_us += demand * total_us
            else:  # (13), floored once per span
                row.fair_gpu_us += sum(
                    [count * (weighted * span // weights) for span, count in runs]
                )
