"""The interface of a policy: one pure function, and the facts that other code needs.

A policy is a class in its own package and one line of `evenshare_core.policies.registry.POLICIES`.
Pages, forms, the API, the simulator and certificates use this interface; none of them checks a
policy's name.
"""

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
from evenshare_core.policies.options import Options, parse_options
from evenshare_core.policies.promised_start import PromisedStart
from evenshare_core.policies.quota_promise import PoolLengths, QuotaPromise, QuotaPromiseKind
from evenshare_core.policies.shared.session import Session, StaticQueue

# Properties that every policy promises, so every certificate checks them.
ALWAYS_PROMISED = frozenset({Property.CAPACITY, Property.GANG, Property.SINGLE_HOLD})


class Private(StrEnum):
    """Data about jobs that only some policies read, named by the snapshot's field.

    If a policy does not read the data, its disclosed rounds do not contain it.
    """

    ESTIMATE = "estimate_us"
    DEADLINE = "deadline_us"
    ESTIMATES = "estimates"
    DEADLINES = "deadlines"
    PROFILERS = "profilers"
    UTILITIES = "utilities"
    MEASURED = "measured"


class Traits(NamedTuple):
    """The inputs that a policy reads, and the actions that it may take.

    `trades_types`: it gives a tenant less of one GPU type for more of another. `needs_profiles`: it
    reads measured speeds. `needs_estimates`: it reads the declared duration of jobs. `preempts`:
    when a lease ends, it may give the GPUs to another waiting job. `preempts_running`: it may end a
    lease before its expiry, with notice, after `Options.min_runtime_us`. `picks_by_rho`: it first
    serves the tenant with the lowest ratio of received to deserved GPU-time, and its picks record
    these ratios. `clears_prices`: its prices already include waiting jobs, so no surcharge is added
    (ADR 0165). `owners_first`: it gives own quota in every round. While a job waits for GPUs of its
    tenant's quota, it starts no borrowing term. `answers_deadlines`: it states for each job with a
    deadline whether the job will meet it, and with which leases. `reads_arrivals`: it derives
    values or prices from arrivals, so no job exchanges its place.
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
    reads_arrivals: bool = False


class PricedStart(NamedTuple):
    """The start of a job of unknown length that would borrow GPUs of one type now.

    `price_micro`: the posted price. `after_micro`: the price that would be posted with the job's
    GPUs in use. Both, and `base_micro`, are in micro-credits per GPU-hour. `lease_us`: the pool's
    lease length.
    """

    gpus: int
    utility: Utility | None
    max_price_micro: int | None
    base_micro: int
    price_micro: int
    after_micro: int
    lease_us: int


class Policy(ABC):
    """A scheduling policy: a pure function with no clock, I/O or state except `snapshot.memory`.

    `version` changes whenever the same snapshot may give a different decision, or the memory gets
    different fields. The engine then drops the memory. Rounds of `earlier_versions` are still
    decided to the same bytes, with `options_of`. `title` and `promise` (one sentence)
    introduce the policy. `suits` states when to choose the policy, and `order_text` which job is
    served first. `quota_text` explains what a tenant may expect of its quota. `quota_kind` states
    how far the quota binds, unless options decide that (`quota_promise`). `note_texts` explains the
    notes of its picks (`Key.note`).
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
    # The keys of the memory, and which of them contain ids.
    memory_ids: Shape = Fields({})
    options_type: type[Options] = Options
    earlier_versions: frozenset[str] = frozenset()
    # Data that the policy reads, in addition to the data that its traits imply.
    also_reads: frozenset[Private] = frozenset()
    # Certified properties in addition to `ALWAYS_PROMISED`.
    promised: frozenset[Property] = frozenset()

    def decides_as(self, version: str) -> bool:
        """Return whether this version's rounds are decided to the same bytes, or nearly all are."""
        return version == self.version or version in self.earlier_versions

    def decides_again(self, snapshot: Snapshot) -> bool:
        """Return whether this round, of any version, is decided to the same bytes."""
        return self.decides_as(snapshot.policy_version)

    def options_of(self, snapshot: Snapshot) -> Options:
        """Return the options of a round, with the defaults of the version that decided it.

        Raises: as `parse_options`.
        """
        return parse_options(self.options_type, snapshot.options)

    def missing(self, options: Options) -> str:  # noqa: ARG002 - of some policies
        """Return `option: why` for an option that needs a package that is not installed, or ""."""
        return ""

    def model_text(self, options: Options) -> str:  # noqa: ARG002 - for policies with several
        """Return the name of the program that rounds solve, for pages, or "" without a program."""
        return ""

    @abstractmethod
    def decide(self, snapshot: Snapshot) -> Decision:
        """Fill `grants`, `renewals`, `ends`, `skips` and `memory`; `decide_round` adds the rest.

        `snapshot.service` must be advanced to `snapshot.at_us`, without `snapshot.changes`.
        """

    def ideals(
        self,
        snapshot: Snapshot,  # noqa: ARG002 - for policies that solve a program
        options: Options,  # noqa: ARG002 - the same
    ) -> tuple[Ideal, ...]:
        """Return the `ideals` of `decide` for a snapshot without memory, at less cost.

        The snapshot's service sums are not read.
        """
        return ()

    def queue_order(
        self,
        snapshot: Snapshot,  # noqa: ARG002 - for policies that have an order
    ) -> tuple[int, ...] | None:
        """Return the jobs that wait or whose lease ended, in the order in which they are served.

        The order assumes that every gang gets its GPUs. Return None if the policy has no order. The
        snapshot must be as for `decide`.
        """
        return None

    def promises(
        self,
        options: Options,  # noqa: ARG002 - for policies whose promises depend on them
        measured: Measured | None = None,  # noqa: ARG002 - for promises that hold of some rounds
    ) -> frozenset[Property]:
        """Return the properties promised with these options, for the round `measured` if given.

        If a round breaks a promised property, its certificate shows a violation.
        """
        return ALWAYS_PROMISED | self.promised

    def quota_promise(
        self,
        options: Options,  # noqa: ARG002 - for policies whose promise depends on them
        lengths: PoolLengths,  # noqa: ARG002 - for those that guarantee a time
    ) -> QuotaPromise:
        """Return what a tenant may expect of its quota, with these options and pool lengths."""
        return QuotaPromise(self.quota_kind, self.quota_text)

    def promised_starts(
        self,
        memory: Mapping[str, Any],  # noqa: ARG002 - for policies that promise starts
    ) -> tuple[PromisedStart, ...]:
        """Return the promised starts of waiting jobs in the memory of its present version."""
        return ()

    def turn_numbers(
        self,
        options: Options,  # noqa: ARG002 - for policies that rank by numbers of tenants
        lease_us: int,  # noqa: ARG002 - the same; the pool's lease length
        decision: Decision,  # noqa: ARG002 - the same; of a round that is over
    ) -> Mapping[tuple[int, str], Mapping[str, Any]]:
        """Return the numbers, never None, by which a round ranked tenants, by (tenant, GPU type).

        The numbers explain `Reason.LEASE_TURN`. The result is empty if the skips already contain
        them, or if the policy does not rank by numbers.
        """
        return {}

    def guarantee(
        self,
        options: Options,  # noqa: ARG002 - for policies that guarantee quotas
        decision: Decision,  # noqa: ARG002 - of a round that is over
    ) -> Guarantee | None:
        """Return which tenants have a guaranteed quota in a round, or None if no tenant has one.

        Certificates check the guarantee if `Property.QUOTA_GUARANTEE` is promised.
        """
        return None

    def proofs(
        self,
        options: Options,  # noqa: ARG002 - for policies of which something is proven
    ) -> Mapping[Property, str]:
        """Return, for each proven property, why it holds in every round that promises it.

        A certificate shows this proof in addition to the cases that it tried.
        """
        return {}

    def order_rule(
        self,
        options: Options,  # noqa: ARG002 - for policies that serve who received least
        snapshot: Snapshot,  # noqa: ARG002 - the same; as the round found it
        decision: Decision,  # noqa: ARG002 - the same
    ) -> OrderRule | None:
        """Return the rule that orders tenants by received over deserved GPU-time, or None.

        The tenant with the lowest ratio goes first. Certificates check the rule if
        `Property.LONG_TERM_ORDER` is promised.
        """
        return None

    def value_rule(
        self,
        options: Options,  # noqa: ARG002 - for policies that ask what jobs are worth
    ) -> ValueRule | None:
        """Return how jobs without a declared value are valued, or None if no value is read.

        Certificates use this rule if `Property.INDIVIDUAL_RATIONALITY` is promised.
        """
        return None

    def reads(self, options: Options) -> frozenset[Private]:
        """Return the jobs' private data that the policy and its rounds' certificates read."""
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
        """Return how far ahead leases of jobs with deadlines are planned, or None if unlimited."""
        return None

    def value_and_price(
        self,
        options: Options,  # noqa: ARG002 - for policies that compare them
        start: PricedStart,  # noqa: ARG002 - the same
    ) -> tuple[int, int] | None:
        """Return the value of a GPU-hour to a job, and the price that it must reach to start.

        Both are in micro-credits. Return None if the policy reads no values and only respects
        maximum prices.
        """
        return None

    def session(
        self,
        options: dict[str, Any],  # noqa: ARG002 - for policies that keep queues
    ) -> Session | None:
        """Return queues that are kept between rounds, or None if each round is decided separately.

        Callers that keep a pool's state (the simulator) get the same decisions as from `decide`.
        """
        return None

    def static_queue(
        self,
        options: dict[str, Any],  # noqa: ARG002 - for policies that are such a queue
    ) -> StaticQueue | None:
        """Return an equivalent queue for one tenant whose leases outlast its jobs, or None."""
        return None
