"""The simulator's rounds: the parts of `decide_round`, on a state that is kept between rounds.

A live round builds a snapshot, runs the policy, explains every waiting job and checks every
invariant. A simulated round performs the same steps with the same functions on kept state:

| step of `policies.base.decide_round` | here |
|---|---|
| `fairness.gpu_time.advance` | the same `Sums`, unfrozen; claims catch up when they are read |
| `Policy.decide` | the policy's `Session`; a policy without a session gets a snapshot |
| `terms.settle` | its `split_terms`, on limits updated as leases start and end |
| `prices.next_surcharges`, `prices.post_prices` | the same |
| reasons, shares, invariants | left out: the simulator does not use them |

Rounds are skipped while the policy's answer stays the same (`Session.quiet_until`). No event may be
due, the last answer must be empty, and no surcharge may have moved a price.

tests/simulation/test_fast_forward.py compares every policy with `decide_round` round by round.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from evenshare_core.domain.decision import End
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import PoolPrice, Surcharge
from evenshare_core.domain.utilities import Utility
from evenshare_core.fairness.claims import has_several_types, move_claims
from evenshare_core.fairness.gpu_time import ClaimSums, Sums
from evenshare_core.placement.consolidated import FreeCapacity
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.registry import options as parse_options
from evenshare_core.policies.shared.admission import Admission, Limits
from evenshare_core.policies.shared.prices import (
    next_surcharges,
    post_prices,
    queued_for_borrowing,
)
from evenshare_core.policies.shared.session import Session, SessionDecision
from evenshare_core.policies.shared.terms import (
    Terms,
    settle_exchanges,
    split_terms,
    withdrawn_ends,
)
from evenshare_core.simulation.lazy_accounting import LazyClaim, RoundInstants
from evenshare_core.simulation.state import SimulationState

Timer = Callable[[], float]


class Rounds:
    """The runner of a simulated pool's rounds; `decide_s`: seconds of each round, if timed."""

    def __init__(
        self, state: SimulationState, *, fast_forward: bool = True, timer: Timer | None = None
    ) -> None:
        """Without `fast_forward`, every round calls `decide_round`, for comparison."""
        self._state, self._timer = state, timer
        self.decide_s: list[float] = []
        policy = state.policy
        session = policy.session(dict(state.rules.options)) if fast_forward else None
        self._kept = None if session is None else _KeptRounds(state, session)

    def run(self) -> int:
        """Run the round at the state's instant; return the number of jobs it started."""
        if self._kept is None:
            return self._ask()
        if self._timer is None:
            decided = self._kept.decide()
        else:
            began = self._timer()
            decided = self._kept.decide()
            self.decide_s.append(self._timer() - began)
        self._state.apply_terms(*decided)
        return len(decided[0].granted)

    def _ask(self) -> int:
        state = self._state
        snapshot = state.snapshot()
        began = self._timer() if self._timer is not None else 0.0
        decision = decide_round(snapshot)
        if self._timer is not None:
            self.decide_s.append(self._timer() - began)
        state.joined.clear()
        state.apply(decision)
        return len(decision.grants)

    def pass_over(self, until_us: int) -> int:
        """Skip rounds before `until_us` that would change nothing; return their number."""
        return self._kept.pass_over(until_us) if self._kept is not None else 0

    def close(self) -> None:
        """Store the sums of the last round in the state."""
        if self._kept is not None:
            self._kept.close()


# A round's terms, ending leases and memory, and the next round's prices and surcharges.
_Decided = tuple[Terms, Sequence[End], dict[str, Any], tuple[PoolPrice, ...], tuple[Surcharge, ...]]


class _KeptRounds:
    """The sums, limits and session of a state; also the `KeptRound` that the session reads."""

    def __init__(self, state: SimulationState, session: Session) -> None:
        rules = state.rules
        self._state, self._session = state, session
        self._window_us = parse_options(rules.policy, dict(rules.options)).fairness_window_us
        self._instants = RoundInstants(state.service.at_us)
        self._sums: Sums | None = None
        self._limits = Limits((), ())
        self._settled = self._open = Admission(self._limits, rules.lease_us)
        for lease in state.leases.values():
            self._settled.hold(lease)
        state.over.clear()
        self._limits_of: object = ()  # the entitlements from which `_limits` was built
        # the prices last posted here; the state's may differ
        self._posted: tuple[PoolPrice, ...] = ()
        self._posted_of = -1  # the version of the occupancy when `_posted` was computed
        self._posted_at: tuple[tuple[int, int], ...] = ()  # (base, theta), if set by the policy
        self._prices_of: tuple[PoolPrice, ...] = ()
        self._prices: dict[str, int] = {}
        self._is_quiet = False  # whether the last round changed nothing
        # The session reads these. Most are the state's own objects and change with it.
        self.at_us, self.lease_us, self.memory = state.at_us, rules.lease_us, state.memory
        self.round_us, self.lease_bounds_us = rules.round_us, rules.lease_bounds_us
        self.due: list[Lease] = []
        self.is_limited = self.is_still = False
        self._seen = (-1, 0)  # (the occupancy's version, the length of `joined`) in the last round
        self.waiting, self.joined = state.queue, state.joined
        self.jobs, self.leases, self.nodes = (
            state.jobs,
            state.leases.values(),
            state.nodes.values(),
        )
        self._has_several_types = has_several_types(node.gpu_type for node in self.nodes)
        self.profiles = state.cluster.profiles
        self.free, self.gpus = state.occupancy.free, state.occupancy.gpus

    def decide(self) -> _Decided:
        """Decide the round at the state's instant; in the state, only the sums change."""
        state, occupancy = self._state, self._state.occupancy
        self.at_us, self.memory = state.at_us, state.memory
        if state.over:
            self._settled.release(state.over)
        has_limits = state.quotas is self._limits_of
        if not has_limits or state.prices is not self._prices_of:
            self._read_limits()
        had_changes = bool(state.changes)
        if had_changes or self._sums is None or self._window_us:
            self._advance()
        else:
            self._instants.add(self.at_us)
            self._move_claims()  # a node may have been lost or returned
        seen = (occupancy.version, len(state.joined))
        self.is_still = has_limits and not had_changes and seen == self._seen
        self.due = state.due
        self.is_limited = not (
            self._limits.are_none and not state.priced and not occupancy.overfull
        )
        answer = self._session.decide(self)
        self._seen = (occupancy.version, len(state.joined))
        terms, ends = self._settle(answer)
        prices, surcharges = state.prices, state.surcharges
        has_use = terms.granted or ends or occupancy.version != self._posted_of
        if has_use or prices is not self._posted or surcharges or answer.prices:
            prices, surcharges = self._post(terms, ends, answer.prices)
        # The new prices stay until the usage changes. They can refuse jobs only if there are
        # limits.
        is_priced_anew = self.is_limited and prices is not state.prices
        # An unchanged surcharge already matches the queue, so it stays until the next event.
        is_moving = surcharges != state.surcharges or (surcharges and prices != state.prices)
        gave = answer.grants or ends or is_priced_anew or is_moving
        outlasts = self._session.outlasts_renewals and not self.is_limited
        self._is_quiet = not (gave or (answer.renewed and not outlasts))
        return terms, ends, answer.memory, prices, surcharges

    def _settle(self, answer: SessionDecision) -> tuple[Terms, Sequence[End]]:
        """Return the terms of the round and the leases that end, as `terms.settle` does."""
        state, due = self._state, self.due
        renewed, grants, preemptions = answer.renewed, answer.grants, answer.preemptions
        self._settled.release(due)
        if not preemptions or not self.is_limited:
            self._settled.release([state.leases[row.lease] for row in preemptions])
            self._settled.begin(self._prices, self._unused(due))
            terms = split_terms(renewed, grants, self._settled, state.jobs, answer.lengths)
            ends = answer.ends
        else:
            before = self._settled

            def admission(preempted: Collection[int]) -> Admission:
                over = [state.leases[lease] for lease in sorted(preempted)]
                self._settled = before.copy(self._limits)
                self._settled.release(over)
                self._settled.begin(self._prices, self._unused([*due, *over]))
                return self._settled

            terms, _, called_off = settle_exchanges(
                renewed, grants, preemptions, admission, state.jobs, lengths=answer.lengths
            )
            go_on = {row.lease for row in called_off}
            ends = [end for end in answer.ends if end.lease not in go_on]
        if terms.withdrawn:
            ends = sorted([*ends, *withdrawn_ends(terms)], key=lambda end: end.lease)
            for grant in grants:
                state.occupancy.touch(grant.placement)
        return terms, ends

    def _unused(self, over: Sequence[Lease]) -> dict[str, int]:
        return self._state.occupancy.unused(over) if self._limits.keepers else {}

    def _advance(self) -> None:
        """Advance the sums to this round as `gpu_time.advance` would, without freezing them."""
        state, instants = self._state, self._instants
        if self._sums is None:
            new_claim = ClaimSums if self._window_us else partial(LazyClaim, rounds=instants)
            self._sums = Sums(state.service, state.occupancy.capacity, new_claim)
        if state.changes:
            last_us, apply = instants.last_us, self._sums.apply
            for change in state.changes_in_order():
                apply(change, max(change.at_us, last_us))
        instants.add(self.at_us)
        self._move_claims()
        if self._window_us:
            for claim in self._sums.claims.values():
                claim.mark(self.at_us, self._window_us)

    def _move_claims(self) -> None:
        """Move claims of waiting jobs to other types, as `decide_round` does."""
        if self._sums is None or not self._has_several_types:
            return
        state = self._state
        waiting = [
            job
            for job in state.jobs.values()
            if len(job.gpu_types) != 1 and not state.runs[job.id].lease
        ]
        self.joined += move_claims(self._sums, waiting, self.at_us)

    def _read_limits(self) -> None:
        state = self._state
        quotas = state.entitle()
        if quotas is not self._limits_of:
            self._limits_of = quotas
            self._limits = Limits(quotas, state.tenants)
            self._settled = self._settled.copy(self._limits)
            self._open = Admission(self._limits, self.lease_us)
        if state.prices is not self._prices_of:
            self._prices = {row.gpu_type: row.price_micro for row in state.prices}
            self._prices_of = state.prices

    def _post(
        self, terms: Terms, ends: Sequence[End], settings: tuple[PoolPrice, ...]
    ) -> tuple[tuple[PoolPrice, ...], tuple[Surcharge, ...]]:
        """Return the prices and surcharges of the next round.

        Unchanged prices are returned as the same object. `settings` has base and theta, if the
        policy sets them.
        """
        state, occupancy = self._state, self._state.occupancy
        used, capacity = occupancy.held, occupancy.capacity
        changes_use = bool(terms.granted or ends)
        if changes_use:
            used = dict(used)
            for grant, (own, borrowed, _) in terms.granted:
                gpus = own + borrowed
                used[grant.gpu_type] = used.get(grant.gpu_type, 0) + gpus
            for end in ends:
                lease = state.leases[end.lease]
                used[lease.gpu_type] -= lease.own + lease.borrowed
        self._posted_of = -1 if changes_use else occupancy.version
        surcharges = self._surcharges(terms, ends, used) if state.surcharges else ()
        posted_at = tuple((row.base_micro, row.theta_milli) for row in settings)
        is_new = state.prices is not self._posted or surcharges != state.surcharges
        is_new = is_new or posted_at != self._posted_at
        for row in state.prices:
            name = row.gpu_type
            is_new = (
                is_new or row.used != used.get(name, 0) or row.capacity != capacity.get(name, 0)
            )
        if is_new:
            rows = post_prices(settings or state.prices, used, capacity, surcharges)
            self._posted = state.cluster.as_set(rows) if settings else rows
            self._posted_at = posted_at
        return self._posted, surcharges

    def _surcharges(
        self, terms: Terms, ends: Sequence[End], used: Mapping[str, int]
    ) -> tuple[Surcharge, ...]:
        """Return the surcharges of the next round; `used` are the GPUs in use after this one."""
        state, settled = self._state, self._settled
        capacity = state.occupancy.capacity
        queued = queued_for_borrowing(
            self._waiting_after(terms, ends),
            entitlements=self._limits.by_key,
            use=settled.use,
            spendable=settled.spendable,
            prices=self._prices,
            capacity=capacity,
            lease_us=self.lease_us,
        )
        return next_surcharges(
            state.surcharges,
            state.prices,
            used=used,
            queued=queued,
            capacity=capacity,
            elapsed_us=state.at_us - state.last_us,
            round_us=self.round_us,
        )

    def _waiting_after(self, terms: Terms, ends: Sequence[End]) -> Iterator[tuple[Job, str]]:
        """Yield jobs that may start but hold no lease after the round, with their claimed types."""
        granted = {grant.job for grant, _ in terms.granted}
        for job in {*self.waiting, *(end.job for end in ends)} - granted:
            yield self.jobs[job], self.sums.jobs[job].gpu_type

    # ---- between rounds ----

    def pass_over(self, until_us: int) -> int:
        state, round_us = self._state, self._state.rules.round_us
        if not self._is_quiet or self._window_us or not state.queue:
            return 0
        stays_us = self._session.quiet_until(self.at_us)
        if stays_us is not None:
            until_us = min(until_us, stays_us)
        count = (until_us - 1 - self.at_us) // round_us
        if count <= 0:
            return 0
        self.at_us += count * round_us
        self._instants.add(self.at_us, count)
        state.number += count
        return count

    def close(self) -> None:
        if self._sums is not None:
            self._state.service = self._sums.freeze(self._instants.last_us, self._window_us)
            self._sums = None

    # ---- values that the session reads ----

    @property
    def sums(self) -> Sums:
        if self._sums is None:
            raise AssertionError("a session reads only rounds that have started")
        return self._sums

    def held(self, tenant: int, gpu_type: str) -> int:
        """Return the GPUs in a tenant's leases, expired leases included."""
        return self._settled.held(tenant, gpu_type)

    def quota(self, tenant: int, gpu_type: str) -> int:
        row = self._limits.by_key.get((tenant, gpu_type))
        return row.gpus if row is not None else 0

    def count_terms(self, job_ids: Iterable[int]) -> None:
        self._state.count_terms(job_ids)

    @property
    def prices(self) -> tuple[PoolPrice, ...]:
        """Prices in force, with the operator's settings."""
        return self._state.prices

    def utility(self, job_id: int) -> Utility | None:
        return self._state.sim_jobs[job_id].utility

    def admission(self, *, counts: bool = False) -> Admission:
        """Return this round's limits with no grant yet; GPUs of expired leases count as free."""
        if not (self.is_limited or self._has_several_types or counts):
            return self._open  # refuses no job, whatever was granted
        tried = self._settled.copy(self._limits)
        tried.release(self.due)
        tried.begin(self._prices, self._state.occupancy.unused(self.due))
        return tried

    def free_capacity(self, *, spread: bool = False) -> dict[str, FreeCapacity]:
        """Return the free capacity for gangs, by GPU type, at the start of this round."""
        state = self._state
        return state.occupancy.free_capacity(
            self.due, state.leases.values(), self.at_us, spread=spread
        )
