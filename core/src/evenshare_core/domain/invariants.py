"""Rules that every decision must satisfy. They share no code with any policy.

Each rule has a code, a function and a test with a planted violation
(tests/unit/core/test_invariants.py).

A job whose lease ends may get a new lease in the same round: that is a move.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from evenshare_core.domain.cluster import Placement, placement_gpus
from evenshare_core.domain.decision import Decision, End, Grant, Preemption, Renew, swapped
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import EndReason, PreemptionRule
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import Value
from evenshare_core.money.fixed_point import worst_case_micro
from evenshare_core.units import SECOND_US

Term = Grant | Renew


class Violation(Value, frozen=True, array_like=True):
    """A rule that a decision violates; `detail` names the rows."""

    rule: str
    detail: str


class InvariantViolation(Exception):  # noqa: N818 - it is the glossary's word, as in Violation
    """A decision violates at least one rule; `violations` lists all."""

    def __init__(self, violations: list[Violation]) -> None:
        super().__init__("; ".join(f"{row.rule}: {row.detail}" for row in violations))
        self.violations = violations


class _Facts:
    """The rows of the snapshot and the decision by key, for all rules."""

    def __init__(self, snapshot: Snapshot, decision: Decision) -> None:
        self.snapshot = snapshot
        self.decision = decision
        self.jobs: dict[int, Job] = {job.id: job for job in snapshot.jobs}
        self.profiles = {profile.id: profile for profile in snapshot.profiles}
        self.leases: dict[int, Lease] = {lease.id: lease for lease in snapshot.leases}
        self.held = {lease.job for lease in snapshot.leases}
        self.ended = {end.lease for end in decision.ends}
        self.renewed = {row.lease for row in decision.renewals}
        self.preempted = {row.lease for row in decision.preemptions}
        self.kept = [
            lease
            for lease in snapshot.leases
            if lease.id not in self.ended and lease.id not in self.renewed
        ]
        self.terms: list[Term] = [*decision.renewals, *decision.grants]
        self.lengths = {row.job: row.lease_us for row in decision.lengths}
        self.entitlements = swapped(snapshot.entitlements, decision.swaps)


def violations(snapshot: Snapshot, decision: Decision) -> list[Violation]:
    """Return every rule that the decision violates, in the order of the rules; empty if valid."""
    facts = _Facts(snapshot, decision)
    return [Violation(rule, detail) for rule, check in RULES.items() for detail in check(facts)]


def _node_capacity(facts: _Facts) -> Iterator[str]:
    """A node with grants or renewals of this round has enough GPUs for all its leases."""
    used: Counter[int] = Counter()
    touched: set[int] = set()
    for lease in facts.snapshot.leases:
        if lease.id not in facts.ended:
            for node_id, gpus in lease.placement:
                used[node_id] += gpus
                if lease.id in facts.renewed:
                    touched.add(node_id)
    for grant in facts.decision.grants:
        for node_id, gpus in grant.placement:
            used[node_id] += gpus
            touched.add(node_id)
    sizes = {node.id: node.gpus for node in facts.snapshot.nodes}
    for node_id in sorted(touched):
        if used[node_id] > sizes.get(node_id, 0):
            yield f"node {node_id} has {sizes.get(node_id, 0)} GPUs, {used[node_id]} are given"


def _placement(facts: _Facts) -> Iterator[str]:
    """A grant names known nodes of its GPU type, each once, with at least one GPU."""
    types = {node.id: node.gpu_type for node in facts.snapshot.nodes}
    for grant in facts.decision.grants:
        for node_id, gpus in grant.placement:
            if node_id not in types:
                yield f"job {grant.job} is placed on unknown node {node_id}"
            elif types[node_id] != grant.gpu_type:
                yield f"job {grant.job} is placed on node {node_id} of another GPU type"
            if gpus < 1:
                yield f"job {grant.job} takes {gpus} GPUs of node {node_id}"
        if len({node_id for node_id, _ in grant.placement}) != len(grant.placement):
            yield f"job {grant.job} names a node twice"


def _gang(facts: _Facts) -> Iterator[str]:
    """A grant gives a gang all the GPUs that it needs."""
    for grant in facts.decision.grants:
        job = facts.jobs.get(grant.job)
        given = placement_gpus(grant.placement)
        if job is not None and given != job.gpus:
            yield f"job {job.id} needs {job.gpus} GPUs, gets {given}"


def _once(facts: _Facts) -> Iterator[str]:
    """No job holds two leases; no lease has two outcomes."""
    holders = Counter(term.job for term in facts.terms)
    holders.update({lease.job for lease in facts.kept})
    yield from _repeated("job", "leases", holders)
    outcomes = Counter(row.lease for row in facts.decision.renewals)
    outcomes.update(end.lease for end in facts.decision.ends)
    yield from _repeated("lease", "outcomes", outcomes)
    orders = Counter(term.order for term in facts.terms)
    yield from _repeated("order", "picks", orders)


def _repeated(what: str, of: str, counts: Mapping[Any, int]) -> Iterator[str]:
    for key, count in sorted(counts.items()):
        if count > 1:
            yield f"{what} {key} has {count} {of}"


def _known_leases(facts: _Facts) -> Iterator[str]:
    """Renewals and ends name leases of the snapshot, unchanged; a renewal keeps its GPUs."""
    for renewal in facts.decision.renewals:
        lease = facts.leases.get(renewal.lease)
        if lease is None:
            yield f"renewal of unknown lease {renewal.lease}"
        elif (renewal.job, renewal.tenant, renewal.gpu_type, renewal.gpus) != (
            lease.job, lease.tenant, lease.gpu_type, lease.gpus,
        ):  # fmt: skip # rows of what belongs together
            yield f"renewal of lease {lease.id} changes its job, tenant or GPUs"
    for end in facts.decision.ends:
        lease = facts.leases.get(end.lease)
        if lease is None:
            yield f"end of unknown lease {end.lease}"
        elif (end.job, end.tenant) != (lease.job, lease.tenant):
            yield f"end of lease {lease.id} names another job or tenant"


def _running_leases(facts: _Facts) -> Iterator[str]:
    """A lease is renewed or ended if and only if it has expired and is not protected.

    A preempted lease ends before its expiry, but not while it is protected.
    """
    at_us = facts.snapshot.at_us
    for lease in facts.snapshot.leases:
        decided = lease.id in facts.ended or lease.id in facts.renewed
        expired = max(lease.expires_us, lease.protected_until_us) <= at_us
        if lease.id in facts.preempted and lease.may_be_preempted(at_us):
            if lease.id not in facts.ended:
                yield f"lease {lease.id} is preempted and does not end"
        elif decided and not expired:
            why = "protected" if lease.expires_us <= at_us else "not expired"
            yield f"lease {lease.id} is {why} and must not be touched"
        if expired and not decided:
            yield f"lease {lease.id} has expired: it must be renewed or ended"


def _lengths(facts: _Facts) -> Iterator[str]:
    """A length belongs to a term of the round, occurs once, and is within the pool's bounds."""
    bounds = facts.snapshot.lease_bounds_us or (facts.snapshot.lease_us,) * 2
    least, most = (bound / SECOND_US for bound in bounds)
    terms = {term.job for term in facts.terms}
    yield from _repeated("job", "lengths", Counter(row.job for row in facts.decision.lengths))
    for row in facts.decision.lengths:
        length = row.lease_us / SECOND_US
        if row.job not in terms:
            yield f"job {row.job} has a length of {length:g} s and no term of this round"
        if not least <= length <= most:
            term_text = f"a term of job {row.job} lasts {length:g} s"
            yield f"{term_text}, the pool allows {least:g} to {most:g} s"


BEFORE_EXPIRY = (EndReason.PREEMPTED, EndReason.MOVED)


def _preemptions(facts: _Facts) -> Iterator[str]:
    """A lease ends before its expiry only for a job that starts on the lease's GPUs and needs them.

    A moved job continues on other GPUs in the same round; a preempted job does not start again in
    this round. A gang causes at most as many moves as it has GPUs.

    If a limit withdrew a pick, its GPUs are free, and if GPUs are promised to waiting jobs, some
    are kept free. The need cannot be checked then; both jobs must share a node.
    """
    ends = {end.lease: end for end in facts.decision.ends}
    grants = {grant.job: grant for grant in facts.decision.grants}
    needed = _NeededGpus(facts)
    for row in facts.decision.preemptions:
        lease, end = facts.leases.get(row.lease), ends.get(row.lease)
        if lease is None or end is None:
            yield f"preemption of lease {row.lease}, which does not end"
            continue
        if (row.job, row.tenant) != (lease.job, lease.tenant):
            yield f"preemption of lease {lease.id} names another job or tenant"
        yield from _how_it_ended(row, end, lease, grants.get(lease.job))
        grant = grants.get(row.for_job)
        if grant is None or grant.tenant != row.for_tenant:
            yield f"lease {lease.id} is preempted for job {row.for_job}, which is not granted"
        elif not needed.takes(lease, grant):
            yield f"job {grant.job} did not need the GPUs of lease {lease.id}"
    yield from _too_many_moves(facts, grants)
    rows = Counter(row.lease for row in facts.decision.preemptions)
    yield from _repeated("lease", "preemptions", rows)
    for end in facts.decision.ends:
        if end.reason in BEFORE_EXPIRY and end.lease not in facts.preempted:
            yield f"lease {end.lease} ends as {end.reason.value}, and no rule says why"


def _how_it_ended(row: Preemption, end: End, lease: Lease, again: Grant | None) -> Iterator[str]:
    """Check the end against its rule; `again` is the new grant of the lease's job."""
    if row.rule is not PreemptionRule.DEFRAGMENT:
        if end.reason is not EndReason.PREEMPTED:
            yield f"lease {lease.id} is preempted and ends as {end.reason.value}"
        if again is not None:
            yield f"job {lease.job} is preempted and granted in the same round"
        return
    if end.reason is not EndReason.MOVED:
        yield f"lease {lease.id} moves and ends as {end.reason.value}"
    nodes = {node for node, _ in lease.placement}
    if again is None or any(node in nodes for node, _ in again.placement):
        yield f"job {lease.job} is moved and not granted elsewhere"


def _too_many_moves(facts: _Facts, grants: dict[int, Grant]) -> Iterator[str]:
    moves = Counter(
        row.for_job
        for row in facts.decision.preemptions
        if row.rule is PreemptionRule.DEFRAGMENT and row.for_job in grants
    )
    for job_id, count in sorted(moves.items()):
        gpus = placement_gpus(grants[job_id].placement)
        if count > gpus:
            yield f"{count} jobs are moved for job {job_id}, which has {gpus} GPUs"


class _NeededGpus:
    """Check that a grant and the lease that ended for it would not both fit after the round."""

    def __init__(self, facts: _Facts) -> None:
        withdrawn = any(skip.numbers.get("withdrawn") for skip in facts.decision.skips)
        self._is_whole = not (withdrawn or facts.decision.memory.get("promises"))
        self._left = {node.id: node.gpus for node in facts.snapshot.nodes}
        for lease in facts.snapshot.leases:
            if lease.id not in facts.ended:
                self._take(lease.placement)
        for grant in facts.decision.grants:
            self._take(grant.placement)

    def _take(self, placement: Placement) -> None:
        for node_id, gpus in placement:
            self._left[node_id] = self._left.get(node_id, 0) - gpus

    def takes(self, lease: Lease, grant: Grant) -> bool:
        """Return whether the two share a node that is too small for both, as far as known."""
        nodes = {node for node, _ in grant.placement}
        return any(
            gpus > self._left.get(node, 0) or not self._is_whole
            for node, gpus in lease.placement
            if node in nodes
        )


def _jobs(facts: _Facts) -> Iterator[str]:
    """Each term is for an active job that may start, with the job's tenant and an accepted type.

    A granted job must be able to run on the type.
    """
    barred = {row.job for row in facts.snapshot.backoffs if row.until_us > facts.snapshot.at_us}
    for term in facts.terms:
        job = facts.jobs.get(term.job)
        if job is None:
            yield f"job {term.job} is not active"
            continue
        if isinstance(term, Grant) and job.id in barred and job.id not in facts.held:
            yield f"job {job.id} may not start yet"
        if term.tenant != job.tenant:
            yield f"job {job.id} belongs to tenant {job.tenant}, not {term.tenant}"
        if job.gpu_types and term.gpu_type not in job.gpu_types:
            yield f"job {job.id} does not accept {term.gpu_type}"
        profile = facts.profiles.get(job.profile)
        if isinstance(term, Grant) and profile and not profile.speed_milli(term.gpu_type):
            yield f"job {job.id} cannot run on {term.gpu_type}"


def _own_and_borrowed(facts: _Facts) -> Iterator[str]:
    """Own + borrowed = the gang; own GPUs stay within the quota after trades."""
    quotas = {(row.tenant, row.gpu_type): row.gpus for row in facts.entitlements}
    kept: Counter[tuple[int, str]] = Counter()
    new: Counter[tuple[int, str]] = Counter()
    for lease in facts.kept:
        kept[lease.tenant, lease.gpu_type] += lease.own
    for term in facts.terms:
        gpus = _gpus(term)
        if term.own < 0 or term.borrowed < 0 or term.own + term.borrowed != gpus:
            yield f"job {term.job}: {term.own} own + {term.borrowed} borrowed are not {gpus}"
        new[term.tenant, term.gpu_type] += term.own
    for key, own in sorted(new.items()):
        if own > max(0, quotas.get(key, 0) - kept[key]):
            yield f"tenant {key[0]} has {quotas.get(key, 0)} {key[1]}, {kept[key] + own} are own"


def _gpus(term: Term) -> int:
    return term.gpus if isinstance(term, Renew) else placement_gpus(term.placement)


def _limits(facts: _Facts) -> Iterator[str]:
    """Borrowing stays within the tenant's limit, the job's maximum price and the credit."""
    limits = {(row.tenant, row.gpu_type): row.may_borrow for row in facts.entitlements}
    borrowed: Counter[tuple[int, str]] = Counter()
    costs: Counter[int] = Counter()
    for lease in facts.kept:
        borrowed[lease.tenant, lease.gpu_type] += lease.borrowed
    borrowers = set()
    for term in facts.terms:
        if term.borrowed <= 0:
            continue
        borrowers.add((term.tenant, term.gpu_type))
        borrowed[term.tenant, term.gpu_type] += term.borrowed
        lease_us = facts.lengths.get(term.job, facts.snapshot.lease_us)
        costs[term.tenant] += worst_case_micro(term.borrowed, term.price_micro, lease_us)
        job = facts.jobs.get(term.job)
        if job and job.max_price_micro is not None and term.price_micro > job.max_price_micro:
            yield f"job {job.id} borrows at {term.price_micro}, at most {job.max_price_micro}"
    for key in sorted(borrowers):
        limit = limits.get(key)
        if limit is not None and borrowed[key] > limit:
            yield f"tenant {key[0]} may borrow {limit} {key[1]}, borrows {borrowed[key]}"
    for tenant in facts.snapshot.tenants:
        if tenant.spendable_micro is not None and costs[tenant.id] > max(0, tenant.spendable_micro):
            yield f"tenant {tenant.id} may spend {tenant.spendable_micro}, not {costs[tenant.id]}"


def _trades(facts: _Facts) -> Iterator[str]:
    """A trade exchanges two types between two tenants, at a rate between the values of both sides.

    Swaps of a type sum to 0, and take no more than its quota from any tenant.
    """
    for row in facts.decision.trades:
        parties = f"the trade of tenants {row.buyer} and {row.seller}"
        if row.buyer == row.seller or row.bought_type == row.sold_type:
            yield f"{parties} exchanges nothing"
        if row.bought_micro <= 0 or row.sold_micro <= 0 or not row.rate_micro:
            yield f"{parties} has amounts of {row.bought_micro} and {row.sold_micro}"
        if not row.seller_rate_micro <= abs(row.rate_micro) <= row.buyer_rate_micro:
            rates = f"{row.seller_rate_micro} to the seller, {row.buyer_rate_micro} to the buyer"
            yield f"{parties} has a rate of {row.rate_micro}, a fast GPU is worth {rates}"
    sums: Counter[str] = Counter()
    keys: Counter[tuple[int, str]] = Counter()
    for swap in facts.decision.swaps:
        sums[swap.gpu_type] += swap.gpus
        keys[swap.tenant, swap.gpu_type] += 1
    yield from _repeated("tenant and type", "swaps", keys)
    for gpu_type, gpus in sorted(sums.items()):
        if gpus:
            yield f"swaps make {gpus} GPUs of {gpu_type}"
    for entitlement in facts.entitlements:
        if entitlement.gpus < 0:
            yield f"tenant {entitlement.tenant} has {entitlement.gpus} {entitlement.gpu_type}"


def _prices(facts: _Facts) -> Iterator[str]:
    """Prices are never negative, and borrowed GPUs cost the round's posted price."""
    posted = {row.gpu_type: row.price_micro for row in facts.snapshot.prices}
    for term in facts.terms:
        price_micro = posted.get(term.gpu_type, 0) if term.borrowed else 0
        if term.price_micro != price_micro:
            yield f"job {term.job} pays {term.price_micro}, posted is {price_micro}"
    for row in facts.decision.prices:
        if row.price_micro < 0:
            yield f"the price of {row.gpu_type} is negative"


def _reasons(facts: _Facts) -> Iterator[str]:
    """Every active job holds a lease after the round, or has exactly one reason to wait."""
    tenants = {job.id: job.tenant for job in facts.snapshot.jobs}
    tenants |= {row.job: row.tenant for row in facts.snapshot.holds}
    holders = {lease.job for lease in facts.kept} | {term.job for term in facts.terms}
    times_skipped = Counter(job for skip in facts.decision.skips for job in skip.jobs)
    for job in facts.snapshot.jobs:
        if job.id not in holders and times_skipped[job.id] != 1:
            yield f"job {job.id} waits with {times_skipped[job.id]} reasons"
    for job_id in sorted(times_skipped):
        if job_id in holders:
            yield f"job {job_id} holds a lease and is listed as waiting"
        elif job_id not in tenants:
            yield f"job {job_id} is not active and is listed as waiting"
    for skip in facts.decision.skips:
        if any(tenants[job] != skip.tenant for job in skip.jobs if job in tenants):
            yield f"a {skip.reason.value} row of tenant {skip.tenant} has jobs of another"


def _held_jobs(facts: _Facts) -> Iterator[str]:
    """Every held job has exactly one reason to wait, and is not active."""
    reasons = Counter(job for skip in facts.decision.skips for job in skip.jobs)
    for row in facts.snapshot.holds:
        if row.job in facts.jobs:
            yield f"job {row.job} is held and is active"
        if reasons[row.job] != 1:
            yield f"job {row.job} is held with {reasons[row.job]} reasons"


def _instants(facts: _Facts) -> Iterator[str]:
    """The decision and its sums have the time of the round."""
    decision = facts.decision
    for what, at_us in (("decision", decision.at_us), ("service", decision.service.at_us)):
        if at_us != facts.snapshot.at_us:
            yield f"the {what} is at {at_us}, the round at {facts.snapshot.at_us}"


RULES: dict[str, Callable[[_Facts], Iterable[str]]] = {
    "node_capacity": _node_capacity,
    "placement": _placement,
    "gang": _gang,
    "once": _once,
    "known_leases": _known_leases,
    "running_leases": _running_leases,
    "preemptions": _preemptions,
    "lengths": _lengths,
    "jobs": _jobs,
    "own_and_borrowed": _own_and_borrowed,
    "limits": _limits,
    "trades": _trades,
    "prices": _prices,
    "reasons": _reasons,
    "held_jobs": _held_jobs,
    "instants": _instants,
}
