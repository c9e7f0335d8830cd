"""The round function of all policies: the entry point for the engine, the simulator and replays.

1. advance the GPU-time sums to the round's instant (fairness belongs to the snapshot);
2. call the policy with the jobs that may start, each at its place within its tenant;
3. set the own and borrowed GPUs and the price of each new term (`terms.settle`), with the quotas
   after trades;
4. compute each tenant's share, with rho before and after;
5. compute the prices posted for the next round from the current use;
6. check the invariants that hold for every decision.

`certify_round` measures the result independently of the policy. `queue_order` returns the order of
waiting jobs.
"""

from collections.abc import Mapping
from functools import partial

import msgspec

from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.decision import Decision, Grant, Ideal, Renew, Share, with_swaps
from evenshare_core.domain.invariants import InvariantViolation, violations
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import PoolPrice, Service, Snapshot, Surcharge
from evenshare_core.fairness.certificate import Certificate
from evenshare_core.fairness.certify import Promises, certify
from evenshare_core.fairness.claims import accepted_types, move_claims, waiting_jobs
from evenshare_core.fairness.gpu_time import advance, windowed
from evenshare_core.fairness.measure import Measured
from evenshare_core.fairness.rho import rho_of
from evenshare_core.money.fixed_point import worst_case_micro
from evenshare_core.policies.policy import ALWAYS_PROMISED
from evenshare_core.policies.shared.backoffs import backoff_skips, without_backoffs
from evenshare_core.policies.shared.held_jobs import held_skips
from evenshare_core.policies.shared.places import with_places
from evenshare_core.policies.shared.prices import (
    next_surcharges,
    post_prices,
    queued_for_borrowing,
)
from evenshare_core.policies.shared.terms import settle


def decide_round(snapshot: Snapshot) -> Decision:
    """Return the decision of one round: a pure function of the snapshot.

    Raises:
        UnknownPolicyError, OptionError: the pool's policy setting is wrong.
        ValueError: the changes contradict the service sums.
        InvariantViolation: the policy broke invariants; the exception lists all of them.

    Source: architecture, "One round function".
    """
    policy = registry.policy(snapshot.policy)
    options = registry.options_of(snapshot)
    service = advance(
        snapshot.service,
        snapshot.changes,
        snapshot.at_us,
        capacity=capacity_by_type(snapshot.nodes),
        window_us=options.fairness_window_us,
        at_round=partial(move_claims, waiting=waiting_jobs(snapshot), at_us=snapshot.at_us),
    )
    ready = msgspec.structs.replace(snapshot, service=service, changes=())
    candidates = with_places(without_backoffs(ready))
    answer = policy.decide(candidates)
    pool = with_swaps(candidates, answer.swaps)
    settled = settle(pool, answer)
    decision = msgspec.structs.replace(
        settled,
        at_us=snapshot.at_us,
        skips=(*settled.skips, *backoff_skips(ready), *held_skips(ready)),
        service=service,
    )
    decision = msgspec.structs.replace(decision, shares=_shares(ready, decision))
    decision = _with_prices(snapshot, pool, answer.prices, decision)
    broken = violations(ready, decision)
    if broken:
        raise InvariantViolation(broken)
    return decision


def with_outcomes(snapshot: Snapshot, decision: Decision) -> Decision:
    """Recompute a decision's shares and next prices from its picks, and return the decision.

    Used to check a decision whose plan cannot be solved again. If the policy sets the base and
    theta of the next prices, these are kept and the posted prices are computed from them.
    """
    ready = msgspec.structs.replace(snapshot, service=decision.service, changes=())
    settings = decision.prices if registry.traits(snapshot.policy).clears_prices else ()
    decision = msgspec.structs.replace(decision, shares=_shares(ready, decision))
    pool = with_swaps(without_backoffs(ready), decision.swaps)
    return _with_prices(snapshot, pool, settings, decision)


def queue_order(snapshot: Snapshot, service: Service) -> tuple[int, ...] | None:
    """Return the jobs that wait or whose lease ended in this round, in the order of service.

    `service`: the sums in the round's decision. The policy orders the jobs as if every gang got its
    GPUs. Return None if the policy has no order. As in the round, jobs that may not start yet are
    left out, and no tenant is charged for them. Jobs larger than the pool or than their tenant's
    limit are left out too.

    Raises:
        UnknownPolicyError, OptionError: the pool's policy setting is wrong.
    """
    ready = msgspec.structs.replace(snapshot, service=service, changes=())
    candidates = _without_hopeless(with_places(without_backoffs(ready)))
    return registry.policy(snapshot.policy).queue_order(candidates)


def _without_hopeless(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without the jobs that could not start even in an empty pool."""
    capacity = capacity_by_type(snapshot.nodes)
    most = {(row.tenant, row.gpu_type): row.most for row in snapshot.entitlements}

    def fits(job: Job, gpu_type: str) -> bool:
        limit = most.get((job.tenant, gpu_type))
        return job.gpus <= capacity[gpu_type] and (limit is None or job.gpus <= limit)

    def is_hopeless(job: Job) -> bool:
        return not any(fits(job, name) for name in accepted_types(job, capacity))

    jobs = tuple(job for job in snapshot.jobs if not is_hopeless(job))
    return msgspec.structs.replace(snapshot, jobs=jobs)


def certify_round(snapshot: Snapshot, decision: Decision) -> Certificate:
    """Return the certificate of a round; see `evenshare_core.fairness.certify.certify`."""
    snapshot = with_places(without_backoffs(snapshot))
    return certify(snapshot, decision, promised=partial(promises, snapshot), ideals_of=round_ideals)


def round_ideals(snapshot: Snapshot) -> tuple[Ideal, ...]:
    """Return the policy's shares before rounding: the `ideals` of `decide_round`.

    This costs much less than a decision, because no share is rounded and no job is placed.

    Raises:
        UnknownPolicyError, OptionError: the pool's policy setting is wrong.
    """
    options = registry.options_of(snapshot)
    return registry.policy(snapshot.policy).ideals(without_backoffs(snapshot), options)


def promises(snapshot: Snapshot, measured: Measured | None = None) -> Promises:
    """Return the promises of the pool's policy, or the minimum if the policy is not installed.

    Raises:
        OptionError: the pool's policy setting is wrong.
    """
    if snapshot.policy not in registry.POLICIES:
        return Promises(ALWAYS_PROMISED)
    options = registry.options_of(snapshot)
    policy = registry.policy(snapshot.policy)
    properties = policy.promises(options, measured)
    guarantee = None if measured is None else policy.guarantee(options, measured.decision)
    order = None if measured is None else policy.order_rule(options, snapshot, measured.decision)
    return Promises(
        properties, order, guarantee, policy.traits.owners_first,
        policy.value_rule(options), policy.traits.needs_profiles, policy.proofs(options),
        options.min_runtime_us,
    )  # fmt: skip # rows of what belongs together


class _RoundUse:
    """The GPUs of one type that a tenant holds before and after the round."""

    __slots__ = ("borrowed", "got", "held_before", "own")

    def __init__(self) -> None:
        self.held_before = self.got = self.own = self.borrowed = 0


def _uses(snapshot: Snapshot, decision: Decision) -> dict[tuple[int, str], _RoundUse]:
    uses: dict[tuple[int, str], _RoundUse] = {}
    changed = {end.lease for end in decision.ends} | {row.lease for row in decision.renewals}
    for lease in snapshot.leases:
        use = uses.setdefault((lease.tenant, lease.gpu_type), _RoundUse())
        use.held_before += lease.gpus
        if lease.id not in changed:
            use.own += lease.own
            use.borrowed += lease.borrowed
    terms: list[Grant | Renew] = [*decision.renewals, *decision.grants]
    for term in terms:
        use = uses.setdefault((term.tenant, term.gpu_type), _RoundUse())
        use.got += term.own + term.borrowed
        use.own += term.own
        use.borrowed += term.borrowed
    return uses


def _shares(snapshot: Snapshot, decision: Decision) -> tuple[Share, ...]:
    """Return the share of each claim; for every policy, the deserved GPUs follow eq. (8)."""
    uses = _uses(snapshot, decision)
    at_us, lease_us = snapshot.at_us, snapshot.lease_us
    shares = []
    for claim in decision.service.claims:
        use = uses.get((claim.tenant, claim.gpu_type)) or _RoundUse()
        share = min(claim.demand, claim.quota)
        alloc, fair = windowed(claim, at_us)
        alloc_after = alloc + (use.own + use.borrowed) * lease_us
        fair_after = fair + share * lease_us
        shares.append(
            Share(
                tenant=claim.tenant,
                gpu_type=claim.gpu_type,
                quota=claim.quota,
                demand=claim.demand,
                deserved=share,
                held_before=use.held_before,
                got=use.got,
                own=use.own,
                borrowed=use.borrowed,
                alloc_gpu_us=alloc,
                fair_gpu_us=fair,
                rho_before=rho_of(alloc, fair),
                rho_after=rho_of(alloc_after, fair_after),
            )
        )
    return tuple(shares)


def _with_prices(
    before: Snapshot, ready: Snapshot, settings: tuple[PoolPrice, ...], decision: Decision
) -> Decision:
    """Return the decision with the prices of the next round, from GPUs in use and queued.

    `before`: the snapshot of the request, with the time of the last round. `ready`: the jobs that
    may start, with quotas after trades. `settings`: base and theta of the next prices if the policy
    sets them. If it does not, the snapshot's base and theta apply.
    """
    uses, used = _uses(ready, decision), dict[str, int]()
    for (_, gpu_type), use in uses.items():
        used[gpu_type] = used.get(gpu_type, 0) + use.own + use.borrowed
    capacity = capacity_by_type(ready.nodes)
    surcharges: tuple[Surcharge, ...] = ()
    if ready.surcharges and not registry.traits(ready.policy).clears_prices:
        surcharges = next_surcharges(
            ready.surcharges,
            ready.prices,
            used=used,
            queued=_queued(ready, decision, uses),
            capacity=capacity,
            elapsed_us=before.at_us - before.service.at_us,
            round_us=before.round_us,
        )
    prices = post_prices(settings or ready.prices, used, capacity, surcharges)
    return msgspec.structs.replace(decision, prices=prices, surcharges=surcharges)


def _queued(
    ready: Snapshot, decision: Decision, uses: Mapping[tuple[int, str], _RoundUse]
) -> dict[str, int]:
    """Return, by type, the GPUs that queued jobs would borrow, once the round's terms are paid."""
    over = {end.lease for end in decision.ends}
    holders = {lease.job for lease in ready.leases if lease.id not in over}
    holders |= {grant.job for grant in decision.grants}
    claims = {row.job: row.gpu_type for row in decision.service.jobs}
    lengths = {row.job: row.lease_us for row in decision.lengths}
    left = {row.id: row.spendable_micro for row in ready.tenants}
    terms: list[Grant | Renew] = [*decision.renewals, *decision.grants]
    for term in terms:
        before_micro = left.get(term.tenant)
        if before_micro is not None and term.borrowed:
            lasts_us = lengths.get(term.job, ready.lease_us)
            cost_micro = worst_case_micro(term.borrowed, term.price_micro, lasts_us)
            left[term.tenant] = before_micro - cost_micro
    none = _RoundUse()

    def use(tenant: int, gpu_type: str) -> tuple[int, int]:
        row = uses.get((tenant, gpu_type), none)
        return row.own, row.borrowed

    return queued_for_borrowing(
        ((job, claims[job.id]) for job in ready.jobs if job.id not in holders and job.id in claims),
        entitlements={(row.tenant, row.gpu_type): row for row in ready.entitlements},
        use=use,
        spendable=left.get,
        prices={row.gpu_type: row.price_micro for row in ready.prices},
        capacity=capacity_by_type(ready.nodes),
        lease_us=ready.lease_us,
    )


# This import is at the end because the registry may load another package's policy, which may import
# this module.
from evenshare_core.policies import registry  # noqa: E402 - it loads them
