"""What a round leaves in plain rows: counts, shares and the quotas that were in force. Pure."""

from __future__ import annotations

from typing import Any

from billing.money import to_text
from scheduling.domain.decision import Decision, Share
from scheduling.domain.snapshot import PoolPrice, Snapshot


def entitled_rows(snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    """Return capacity and effective quotas per GPU type: {tenant: [GPUs, lendable at most]}.

    The second figure is null where all idle quota may be lent.
    """
    capacity: dict[str, int] = {}
    for node in snapshot.nodes:
        capacity[node.gpu_type] = capacity.get(node.gpu_type, 0) + node.gpus
    rows: dict[str, dict[str, Any]] = {
        gpu_type: {"capacity": capacity[gpu_type], "quotas": {}} for gpu_type in sorted(capacity)
    }
    for e in snapshot.entitlements:
        if e.gpu_type in rows:
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
        "theta": f"{price.theta_milli // 1000}.{price.theta_milli % 1000:03d}",
    }


def share_row(share: Share) -> dict[str, Any]:
    """Return a share with its field names, for the row that outlives the round's bytes."""
    return {name: getattr(share, name) for name in share.__struct_fields__}


def summary_row(
    snapshot: Snapshot, decision: Decision, *, granted: int, renewed: int, ended: int
) -> dict[str, Any]:
    """Return the counts of a round as applied (what was superseded is not in them)."""
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
    }


def _by_reason(decision: Decision) -> dict[str, int]:
    counts: dict[str, int] = {}
    for skip in decision.skips:
        counts[skip.reason.value] = counts.get(skip.reason.value, 0) + len(skip.jobs)
    return dict(sorted(counts.items()))
