"""First come, first served, with longer terms for smaller gangs.

The policy serves to test terms whose length the policy chooses. A job of one GPU gets the longest
term that the pool allows. A job of two GPUs gets the pool's lease length, a larger job the shortest
term.

Source: none. The order is that of `fifo`.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from evenshare_core.domain.decision import Decision, Grant, Renew, TermLength
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies import registry
from evenshare_core.policies.policy import Policy
from evenshare_core.policies.shared.session import KeptRound, Session, SessionDecision

_INNER = registry.policy("fifo")


def length_us(gpus: int, bounds_us: tuple[int, ...]) -> int | None:
    """Return the length of a term of `gpus` GPUs, or None for the pool's lease length."""
    if not bounds_us or gpus == 2:
        return None
    return max(bounds_us) if gpus == 1 else min(bounds_us)


class Lengths(Policy):
    """The policy of this module."""

    name = "lengths"
    version = "1"
    title = "Short terms for large jobs"
    promise = "A large job's GPUs are up for others sooner."
    suits = "Tests."
    order_text = "Whoever was submitted first."
    options_type = _INNER.options_type
    bounds_us: tuple[int, ...] = ()  # the bounds of the pool, because `session` gets no snapshot

    def decide(self, snapshot: Snapshot) -> Decision:
        """Decide one round."""
        decision = _INNER.decide(snapshot)
        gpus = {job.id: job.gpus for job in snapshot.jobs}
        terms: list[Grant | Renew] = [*decision.renewals, *decision.grants]
        asked = {term.job: length_us(gpus[term.job], snapshot.lease_bounds_us) for term in terms}
        rows = [TermLength(job, lasts_us) for job, lasts_us in sorted(asked.items()) if lasts_us]
        return replace(decision, lengths=tuple(rows))

    def session(self, options: dict[str, Any]) -> Session | None:
        inner = _INNER.session(options)
        return None if inner is None else _LengthsSession(inner, self.bounds_us)


class _LengthsSession:
    """A session of `fifo` that also chooses the lengths of terms."""

    outlasts_renewals = False

    def __init__(self, inner: Session, bounds_us: tuple[int, ...]) -> None:
        self._inner, self._bounds_us = inner, bounds_us

    def decide(self, view: KeptRound) -> SessionDecision:
        answer = self._inner.decide(view)
        jobs = [*(lease.job for lease in answer.renewed), *(grant.job for grant in answer.grants)]
        asked = {job: length_us(view.jobs[job].gpus, self._bounds_us) for job in jobs}
        lengths = {job: lasts_us for job, lasts_us in asked.items() if lasts_us}
        return replace(answer, lengths=lengths)

    def quiet_until(self, at_us: int) -> int | None:
        return self._inner.quiet_until(at_us)


POLICY = Lengths()
