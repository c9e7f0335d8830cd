"""A comparison of policies: a pool's next round, decided by each of them from one snapshot."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec
import structlog
from django.utils.translation import gettext as _

from evenshare_core.domain.instants import from_us
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.policy import Policy
from evenshare_core.policies.registry import POLICIES, UnknownPolicyError, options
from evenshare_core.units import MILLISECOND_US, SECOND_US
from scheduling.engine.clock import PoolNow
from scheduling.engine.snapshots import next_instant, next_number, read_snapshot
from scheduling.selectors.stored_texts import STORED
from scheduling.services.round_impact import NO_COUNTS, RoundCounts
from scheduling.services.settings_impact import under_policy
from tenants.scopes import site_scope

# The maximum time for which the page waits; policies that were not tried by then are reported.
BUDGET_S = 20.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """A policy's decision for the round, in numbers; `error` explains why it could not decide.

    `held` and `borrowed` count the GPUs in leases after the round. `took_ms`: the time for the
    decision and its checks.
    """

    policy: str
    counts: RoundCounts = NO_COUNTS
    held: int = 0
    borrowed: int = 0
    took_ms: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class PolicyComparison:
    """The decisions of all policies for round `number` at `at`, sorted by policy name."""

    number: int
    at: datetime
    gpus: int
    outcomes: tuple[PolicyOutcome, ...]


def compare_policies(*, pool_id: int, now: PoolNow) -> PolicyComparison:
    """Decide a pool's next round by every policy; nothing is written.

    The pool's own policy has its options and its memory. Every other policy starts with its
    defaults and without memory, as after a change of policy.

    Raises:
        RuntimeError: it is called inside a transaction.
    """
    with site_scope():
        number = next_number(pool_id)
        at = next_instant(pool_id, now)
    try:
        snapshot = read_snapshot(pool_id, number=number, at=at)
    except UnknownPolicyError as error:
        why = STORED.shown(str(error))
        none = tuple(PolicyOutcome(name, error=why) for name in sorted(POLICIES))
        return PolicyComparison(number, at, 0, none)
    gpus = sum(node.gpus for node in snapshot.nodes)
    outcomes = outcomes_of(snapshot, POLICIES, BUDGET_S)
    return PolicyComparison(number, from_us(snapshot.at_us), gpus, outcomes)


def outcomes_of(
    snapshot: Snapshot, policies: Mapping[str, Policy], budget_s: float
) -> tuple[PolicyOutcome, ...]:
    """Decide a snapshot by each policy, the pool's own first, until `budget_s` is over."""
    began = time.perf_counter()
    outcomes: list[PolicyOutcome] = []
    for name in _own_first(policies, snapshot.policy):
        if outcomes and time.perf_counter() - began > budget_s:
            error = _("Skipped: the other policies took {seconds} s.").format(
                seconds=f"{budget_s:.0f}"
            )
            outcomes.append(PolicyOutcome(name, error=error))
        else:
            outcomes.append(_outcome_of(snapshot, name))
    return tuple(sorted(outcomes, key=lambda row: row.policy))


def _own_first(policies: Iterable[str], own: str) -> list[str]:
    return sorted(policies, key=lambda name: (name != own, name))


def _outcome_of(snapshot: Snapshot, name: str) -> PolicyOutcome:
    asked = snapshot
    if name != snapshot.policy:
        asked = under_policy(snapshot, name, msgspec.to_builtins(options(name, {})))
    began = time.perf_counter()
    try:
        decision = decide_round(asked)
    except Exception as error:
        log.warning("comparison.failed", policy=name, exc_info=True)
        return PolicyOutcome(name, error=f"{type(error).__name__}: {error}"[:300])
    took_ms = (time.perf_counter() - began) * SECOND_US / MILLISECOND_US
    return PolicyOutcome(
        name,
        RoundCounts.of(decision),
        held=sum(row.own + row.borrowed for row in decision.shares),
        borrowed=sum(row.borrowed for row in decision.shares),
        took_ms=took_ms,
    )
