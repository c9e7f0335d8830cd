"""The market on memory, order and prices that are kept between rounds."""

from typing import Any

from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.policies.market.memory import MarketMemory
from evenshare_core.policies.market.options import MarketOptions
from evenshare_core.policies.market.picks import MarketPicks
from evenshare_core.policies.market.pool import PricedPool
from evenshare_core.policies.market.slots import Store
from evenshare_core.policies.shared.session import KeptRound, SessionDecision


class MarketSession:
    """The market's rounds in one pool.

    Between two batches, time changes nothing: own quota depends only on counts and nodes, which do
    not change. The only exception is the time at which theta forgets a day.
    """

    outlasts_renewals = True

    def __init__(self, options: MarketOptions) -> None:
        self._options = options
        self._memory: MarketMemory | None = None
        self._data: dict[str, Any] | None = None  # the memory at the end of the last round
        self._waiting: list[Job] = []  # waiting jobs by arrival
        self._uses: Store = {}
        self._stays_us = 0

    def decide(self, view: KeptRound) -> SessionDecision:
        """Decide a round with the same result as `Market.decide` on its snapshot."""
        memory = self._memory
        if memory is None or view.memory is not self._data:
            memory = self._memory = MarketMemory(view.memory, self._options)
        memory.begin(view.at_us, view.round_us, view.lease_us)
        pool = PricedPool.kept(view, self._options)
        came = [view.jobs[job] for job in dict.fromkeys(view.joined) if job in view.jobs]
        settings = memory.settings(pool, came)
        picks = MarketPicks(pool, self._options, memory, settings, self._uses)
        left = picks.run(self._in_order(view))
        self._data = memory.data((job.id for job in left), planned=picks.has_planned)
        moves = picks.clears and bool(pool.due)  # another node may be kept in the next round
        self._stays_us = view.at_us if moves else memory.stays_until()
        renewed = {row.lease for row in picks.renewals}
        return SessionDecision(
            picks.grants,
            [lease for lease in view.due if lease.id in renewed],
            picks.ends(view.gpus) if len(renewed) < len(pool.due) else (),
            self._data,
            lengths={row.job: row.lease_us for row in picks.lengths},
            prices=settings,
        )

    def quiet_until(self, at_us: int) -> int | None:
        """Return the time, in us, before which time changes nothing: usually the next batch."""
        return max(at_us, self._stays_us)

    def _in_order(self, view: KeptRound) -> list[Job]:
        """Return the waiting jobs by arrival. They are sorted again only if jobs came or went."""
        if view.joined or len(self._waiting) != len(view.waiting):
            self._waiting = sorted((view.jobs[job] for job in view.waiting), key=arrival_order)
            view.joined.clear()
        return self._waiting
