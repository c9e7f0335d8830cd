"""Plain rows that a round stores: counts, shares and the effective quotas (pure functions)."""

from collections.abc import Collection, Mapping
from typing import Any

from evenshare_core.domain.cluster import capacity_by_type, placement_gpus
from evenshare_core.domain.decision import Decision, Trade
from evenshare_core.domain.snapshot import PoolPrice, Snapshot, Surcharge
from evenshare_core.money.fixed_point import to_text
from evenshare_core.policies.promised_start import count_promises
from evenshare_core.policies.registry import policy_summary, promised_starts
from evenshare_core.units import ONE_MILLI

FALLBACK_LENGTH = 120  # the length of the column Round.fallback


def entitled_rows(snapshot: Snapshot, *, known: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return capacity and effective quotas per GPU type: {tenant: [GPUs, most GPUs to lend]}.

    The second number is null if all idle quota may be lent. Types that are `known` to billing and
    have no nodes any more have a capacity of 0 and no quotas.
    """
    capacity = capacity_by_type(snapshot.nodes)
    rows: dict[str, dict[str, Any]] = {
        gpu_type: {"capacity": capacity.get(gpu_type, 0), "quotas": {}}
        for gpu_type in sorted({*capacity, *known})
    }
    for e in snapshot.entitlements:
        if e.gpu_type in capacity:
            limit = e.lendable(e.gpus)
            rows[e.gpu_type]["quotas"][str(e.tenant)] = [
                e.gpus,
                limit if limit < e.gpus else None,
            ]
    return rows


def price_row(price: PoolPrice) -> dict[str, Any]:
    """Return a posted price as billing reads it: decimals as strings."""
    return {
        "gpu_type": price.gpu_type,
        "price": to_text(price.price_micro),
        "used": price.used,
        "capacity": price.capacity,
        "base": to_text(price.base_micro),
        "theta": _milli_text(price.theta_milli),
    }


def surcharge_row(row: Surcharge) -> dict[str, Any]:
    """Return the surcharge that the queue adds to a price, with its inputs, as billing reads it.

    Step and cap are relative to the base price. The fields are missing if the pool has no
    surcharge.
    """
    return {
        "queued": row.queued,
        "surcharge": to_text(row.surcharge_micro),
        "surcharge_step": _milli_text(row.step_milli),
        "surcharge_cap": _milli_text(row.cap_milli),
    }


def _milli_text(milli: int) -> str:
    return f"{milli // ONE_MILLI}.{milli % ONE_MILLI:03d}"


def trade_row(trade: Trade) -> dict[str, Any]:
    """Return a trade by field names, for the event, which is kept longer than the round's data."""
    return {name: getattr(trade, name) for name in trade.__struct_fields__}


def share_rows(
    decision: Decision, throughput: Mapping[tuple[int, str], int]
) -> list[dict[str, Any]]:
    """Return shares by field names, for the row, which is kept longer than the round's data.

    In pools with profiles the shares also contain `throughput_milli`, the throughput of their GPUs.
    If trades change a quota, the shares also contain `swapped`, in GPUs.
    """
    shares = {(row.tenant, row.gpu_type): row for row in decision.shares}
    swapped = {(row.tenant, row.gpu_type): row.gpus for row in decision.swaps}
    rows = []
    for key, share in shares.items():
        row = {name: getattr(share, name) for name in share.__struct_fields__}
        if throughput:
            row["throughput_milli"] = throughput.get(key, 0)
        if key in swapped:
            row["swapped"] = swapped[key]
        rows.append(row)
    return rows


def throughputs(snapshot: Snapshot, decision: Decision) -> dict[tuple[int, str], int]:
    """Return GPUs x speed of all leases after the round, by (tenant, GPU type).

    The unit is a thousandth of a GPU of each job's slowest type. The result is empty if no job has
    a profile.
    """
    if not snapshot.profiles:
        return {}
    profiles = {profile.id: profile for profile in snapshot.profiles}
    profile_of = {job.id: profiles.get(job.profile) for job in snapshot.jobs}
    over = {end.lease for end in decision.ends}
    held = [
        (lease.job, lease.tenant, lease.gpu_type, lease.gpus)
        for lease in snapshot.leases
        if lease.id not in over
    ]
    held += [
        (grant.job, grant.tenant, grant.gpu_type, placement_gpus(grant.placement))
        for grant in decision.grants
    ]
    by_type: dict[tuple[int, str], int] = {}
    for job, tenant, gpu_type, gpus in held:
        profile = profile_of.get(job)
        speed = profile.speed_milli(gpu_type) if profile else ONE_MILLI
        by_type[tenant, gpu_type] = by_type.get((tenant, gpu_type), 0) + gpus * speed
    return by_type


def fallback_text(decision: Decision) -> str:
    """Return the backend that replaced the requested one, and the reason; "" without a fallback."""
    solve = decision.solve
    if solve is None or not solve.fallback:
        return ""
    return f"{solve.backend}, because {solve.fallback}"[:FALLBACK_LENGTH]


def summary_row(
    snapshot: Snapshot, decision: Decision, *, granted: int, renewed: int, ended: int
) -> dict[str, Any]:
    """Return the counts of a round as applied, without superseded items.

    In pools with profiles, the counts also contain the throughput, and the policy with its options.
    In rounds with promised starts, they contain the number of these by outcome.
    """
    capacity = sum(node.gpus for node in snapshot.nodes)
    used = sum(price.used for price in decision.prices)
    return {
        "granted": granted,
        "renewed": renewed,
        "ended": ended,
        "waiting": sum(len(skip.jobs) for skip in decision.skips),
        "waiting_gpus": sum(skip.gpus for skip in decision.skips),
        "capacity": capacity,
        "used": used,
        "idle": capacity - used,
        "reasons": _by_reason(decision),
        **_throughput(snapshot, decision),
        **_promises(snapshot, decision),
    }


def preempted_row(by_rule: Mapping[str, int]) -> dict[str, Any]:
    """Return the number of leases that ended before their expiry, by rule; empty if none did."""
    return {"preempted": dict(sorted(by_rule.items()))} if by_rule else {}


def _throughput(snapshot: Snapshot, decision: Decision) -> dict[str, Any]:
    if not snapshot.profiles:
        return {}
    return {
        "throughput_milli": sum(throughputs(snapshot, decision).values()),
        "policy": policy_summary(snapshot.policy, snapshot.options),
    }


def _promises(snapshot: Snapshot, decision: Decision) -> dict[str, Any]:
    before, after = (
        promised_starts(snapshot.policy, snapshot.policy_version, memory)
        for memory in (snapshot.memory, decision.memory)
    )
    if not (before or after):
        return {}
    return {"promises": count_promises(before, after, snapshot, decision)._asdict()}


def _by_reason(decision: Decision) -> dict[str, int]:
    counts: dict[str, int] = {}
    for skip in decision.skips:
        counts[skip.reason.value] = counts.get(skip.reason.value, 0) + len(skip.jobs)
    return dict(sorted(counts.items()))
