"""What every policy is: one pure function, and all that others need to know of it.

A policy is a class in a package of its own and one line of
`evenshare_core.policies.registry.POLICIES`. Pages, forms, the API, the simulator and certificates
ask it; none of them knows its name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from evenshare_core.domain.decision import Decision, Ideal
from evenshare_core.domain.ids import Fields, Shape
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.utilities import Utility
from evenshare_core.fairness.certificate import Property
from evenshare_core.fairness.guarantee import Guarantee
from evenshare_core.fairness.job_value import ValueRule
from evenshare_core.fairness.measure import Measured
from evenshare_core.fairness.order import OrderRule
from evenshare_core.policies.options import Options
from evenshare_core.policies.quota_promise import PoolLengths, QuotaPromise, QuotaPromiseKind
from evenshare_core.policies.shared.session import Session, StaticQueue

# What a certificate asks of every policy.
ALWAYS_PROMISED = frozenset({Property.CAPACITY, Property.GANG, Property.SINGLE_HOLD})


class Private(StrEnum):
    """What jobs say of themselves that only some policies read, by its place in the snapshot.

    It is left out of a disclosed round whose policy does not read it.
    """

    ESTIMATE = "estimate_us"
    DEADLINE = "deadline_us"
    ESTIMATES = "estimates"
    DEADLINES = "deadlines"
    PROFILERS = "profilers"
    UTILITIES = "utilities"
    MEASURED = "measured"


class Traits(NamedTuple):
    """What a policy looks at, and what it may do.

    `trades_types`: gives a tenant less of one GPU type for more of another. `needs_profiles`:
    looks at measured speeds. `needs_estimates`: looks at how long a job is said to take.
    `preempts`: may give a lease that ends to another job that waits. `preempts_running`: may end a
    lease before its expiry, with notice, once it has run for `Options.min_runtime_us`.
    `picks_by_rho`: serves whoever has received least for what it deserved, and its picks carry
    these ratios. `clears_prices`: what waits is in its prices already, so that no surcharge is
    added (ADR 0165). `owners_first`: it gives own quota in every round, and begins no term that
    borrows where a job waits for GPUs of its tenant's quota. `answers_deadlines`: says of each job
    with a deadline whether it is met, and by which leases.
    """

    trades_types: bool = False
    needs_profiles: bool = False
    needs_estimates: bool = False
    preempts: bool = False
    preempts_running: bool = False
    picks_by_rho: bool = False
    clears_prices: bool = False
    owners_first: bool = False
    answers_deadlines: bool = False


class PricedStart(NamedTuple):
    """A job of unknown length that would start now and borrow GPUs of one type.

    `price_micro` is posted now, `after_micro` what would be posted with its own GPUs in use, both
    in micro-credits per GPU-hour, as `base_micro`. `lease_us`: the pool's lease length.
    """

    gpus: int
    utility: Utility | None
    max_price_micro: int | None
    base_micro: int
    price_micro: int
    after_micro: int
    lease_us: int


class Policy(ABC):
    """A scheduling policy: pure, no clock, no I/O, no state but `snapshot.memory`.

    `version` changes whenever the same snapshot may give another decision, or the memory another
    shape; the engine then drops the memory. `title` and `promise` (one sentence) introduce it,
    `suits` says when to choose it, `order_text` who goes first, `queue_order` in which order jobs
    are taken, `quota_text` what a tenant may expect of its quota and `quota_kind` how far it binds,
    unless options decide that (`quota_promise`). `note_texts` explains the notes of its picks
    (`Key.note`).
    """

    name: str
    version: str
    title: str
    promise: str
    suits: str
    order_text: str
    quota_text: str = (
        "GPUs within quota are a tenant's own; GPUs above it are borrowed at the posted price. A"
        " quota moves no job ahead: while others hold the GPUs, a tenant may hold less than its"
        " quota."
    )
    quota_kind: QuotaPromiseKind = QuotaPromiseKind.NOT_GUARANTEED
    note_texts: Mapping[str, str] = MappingProxyType({})
    traits: Traits = Traits()
    # Where its memory has ids; it has no keys but these.
    memory_ids: Shape = Fields({})
    options_type: type[Options] = Options
    # What `reads` says besides what its traits say.
    also_reads: frozenset[Private] = frozenset()
    # What rounds are certified for besides `ALWAYS_PROMISED`.
    promised: frozenset[Property] = frozenset()

    def missing(self, options: Options) -> str:  # noqa: ARG002 - of some policies
        """Return which option needs what is not installed, as `option: why`; "" if none does."""
        return ""

    @abstractmethod
    def decide(self, snapshot: Snapshot) -> Decision:
        """Fill `grants`, `renewals`, `ends`, `skips` and `memory`; `decide_round` adds the rest.

        `snapshot.service` is as of `snapshot.at_us`, and `snapshot.changes` is empty.
        """

    def ideals(
        self,
        snapshot: Snapshot,  # noqa: ARG002 - for policies that solve a program
        options: Options,  # noqa: ARG002 - the same
    ) -> tuple[Ideal, ...]:
        """Return the `ideals` of `decide` for a snapshot without memory, at less cost.

        The snapshot's service sums are not asked.
        """
        return ()

    def queue_order(
        self,
        snapshot: Snapshot,  # noqa: ARG002 - for policies that have an order
    ) -> tuple[int, ...] | None:
        """Return the jobs that wait or whose lease ended, in the order in which it takes them.

        That is who would be served when, if every gang found its GPUs. None where there is no
        such order. The snapshot is as for `decide`.
        """
        return None

    def promises(
        self,
        options: Options,  # noqa: ARG002 - for policies whose promises depend on them
        measured: Measured | None = None,  # noqa: ARG002 - for promises that hold of some rounds
    ) -> frozenset[Property]:
        """Return what it promises with these options, of the measured round if there is one.

        A round that breaks one of them is shown as violated.
        """
        return ALWAYS_PROMISED | self.promised

    def quota_promise(
        self,
        options: Options,  # noqa: ARG002 - for policies whose promise depends on them
        lengths: PoolLengths,  # noqa: ARG002 - for those that guarantee a time
    ) -> QuotaPromise:
        """Return what a tenant may expect of its quota with these options, in such a pool."""
        return QuotaPromise(self.quota_kind, self.quota_text)

    def turn_numbers(
        self,
        options: Options,  # noqa: ARG002 - for policies that rank by numbers of tenants
        lease_us: int,  # noqa: ARG002 - the same; the pool's lease length
        decision: Decision,  # noqa: ARG002 - the same; of a round that is over
    ) -> Mapping[tuple[int, str], Mapping[str, Any]]:
        """Return by which numbers a round ranked tenants, by (tenant, GPU type); no value is None.

        They explain `Reason.LEASE_TURN`. Empty if its rows have them, or if it ranks by none.
        """
        return {}

    def guarantee(
        self,
        options: Options,  # noqa: ARG002 - for policies that guarantee quotas
        decision: Decision,  # noqa: ARG002 - of a round that is over
    ) -> Guarantee | None:
        """Return to whom it guarantees quotas in a round; None: to nobody.

        Rounds are certified for it where `Property.QUOTA_GUARANTEE` is promised.
        """
        return None

    def proofs(
        self,
        options: Options,  # noqa: ARG002 - for policies of which something is proven
    ) -> Mapping[Property, str]:
        """Return by what it is known that a property holds in each round of which it is promised.

        A certificate says so beside what was tried.
        """
        return {}

    def order_rule(
        self,
        options: Options,  # noqa: ARG002 - for policies that serve who received least
        snapshot: Snapshot,  # noqa: ARG002 - the same; as the round found it
        decision: Decision,  # noqa: ARG002 - the same
    ) -> OrderRule | None:
        """Return by which rule those go first who received least for their due; None: by none.

        Rounds are certified by it where `Property.LONG_TERM_ORDER` is promised.
        """
        return None

    def value_rule(
        self,
        options: Options,  # noqa: ARG002 - for policies that ask what jobs are worth
    ) -> ValueRule | None:
        """Return how it takes jobs that do not say what they are worth; None: it does not ask.

        Rounds are certified by it where `Property.INDIVIDUAL_RATIONALITY` is promised.
        """
        return None

    def reads(self, options: Options) -> frozenset[Private]:
        """Return what it and its rounds' certificates read of what jobs say of themselves."""
        asks = {
            Private.ESTIMATE: self.traits.needs_estimates,
            Private.UTILITIES: self.value_rule(options) is not None,
            Private.MEASURED: self.traits.needs_profiles,
            Private.ESTIMATES: self.traits.answers_deadlines,
            Private.DEADLINES: self.traits.answers_deadlines,
            Private.PROFILERS: self.traits.answers_deadlines,
        }
        return self.also_reads | {name for name, is_read in asks.items() if is_read}

    def deadline_horizon_us(
        self,
        options: Options,  # noqa: ARG002 - for policies that plan leases by a horizon
        lease_us: int,  # noqa: ARG002 - the same; the pool's lease length
    ) -> int | None:
        """Return how far ahead it plans leases of jobs with deadlines; None: no such limit."""
        return None

    def value_and_price(
        self,
        options: Options,  # noqa: ARG002 - for policies that compare them
        start: PricedStart,  # noqa: ARG002 - the same
    ) -> tuple[int, int] | None:
        """Return what a GPU-hour is worth to a job and the price that it must be worth to start.

        In micro-credits. None: it asks for no worth, a maximum price is all that it heeds.
        """
        return None

    def session(
        self,
        options: dict[str, Any],  # noqa: ARG002 - for policies that keep queues
    ) -> Session | None:
        """Return queues that go on from round to round; None where each round is asked anew.

        Whoever keeps a pool's state, as the simulator does, decides by them what `decide` would.
        """
        return None

    def static_queue(
        self,
        options: dict[str, Any],  # noqa: ARG002 - for policies that are such a queue
    ) -> StaticQueue | None:
        """Return the queue that it is where a tenant is alone and leases outlast their jobs."""
        return None
