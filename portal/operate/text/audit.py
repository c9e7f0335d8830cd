"""Audit records as text: the action, and each changed value, before and after."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from portal.charts.figures import plural
from tenants.selectors.quota_records import dilution_text

ACTION_TEXTS = {
    "quota.saved": "changed quotas",
    "quota.undone": "undid a change of quotas",
    "tenant.created": "created",
    "member.added": "added a member",
    "member.role_changed": "changed a role",
    "member.removed": "removed a member",
    "person.created": "created",
    "person.deactivated": "deactivated",
    "person.reactivated": "reactivated",
    "person.password_changed": "changed the password",
    "token.created": "created an API token",
    "token.revoked": "revoked an API token",
    "access.refused": "was refused",
    "pool.changed": "changed settings",
    "clock.changed": "changed the clock",
    "clock.paused": "paused",
    "clock.resumed": "resumed",
    "price.changed": "changed the price",
    "node.drained": "drained",
    "node.resumed": "resumed",
    "node.added": "added",
    "node.removed": "removed",
    "maintenance.planned": "planned maintenance",
    "maintenance.ended": "cancelled maintenance",
    "job.released": "released",
    "executor.losses_accepted": "accepted the loss of leases",
    "lease.written_off": "ended an overdue lease",
    "sharing.changed": "changed lending and borrowing",
    "price_limit.changed": "changed the maximum price of its jobs",
    "offer.made": "offered idle quota",
    "offer.revoked": "revoked an offer",
    "credit.terms": "changed limit or budget",
    "credit.allowance": "posted an allowance",
    "credit.transfer_asked": "requested a transfer",
    "credit.transfer_approved": "approved a transfer",
    "credit.transfer_refused": "refused a transfer",
    "simulation.asked": "started a simulation",
    "simulation.cancelled": "cancelled a simulation",
}
# Kept for undoing; not shown.
INNER = {"planned_at", "next_round", "undoes", "since"}


@dataclass(frozen=True, slots=True)
class Difference:
    """A changed value; empty if it did not exist."""

    name: str
    before: str
    after: str


def action_text(action: str) -> str:
    """Return the action as a verb."""
    return ACTION_TEXTS.get(action, action)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield every changed value of a record, nested values by their path."""
    if "periods" in before or "periods" in after:
        yield from _quotas(before.get("periods", ()), after.get("periods", ()))
        for row in after.get("dilutes", ()):
            yield Difference("dilutes", "", dilution_text(row))
        return
    old, new = dict(_flat(before)), dict(_flat(after))
    for name in [*old, *(name for name in new if name not in old)]:
        was, becomes = old.get(name, ""), new.get(name, "")
        # A removed value has no "after"; a member's name is shown even if it is unchanged.
        if was != becomes or name == "member":
            yield Difference(name.replace("_", " "), was, becomes)


def _flat(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if name in INNER and not path:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}, ")
        else:
            yield path + name, _shown(value)


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_shown(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _quotas(before: Any, after: Any) -> Iterator[Difference]:
    """Yield a line per tenant and GPU type whose periods differ."""
    types = sorted({(row["tenant"], row["gpu_type"]) for row in (*before, *after)})
    for tenant, gpu_type in types:
        key = (tenant, gpu_type)
        was, becomes = _periods(before, key), _periods(after, key)
        yield Difference(f"{tenant}, {gpu_type}", was or "no quota", becomes or "no quota")


def _periods(rows: Any, key: tuple[str, str]) -> str:
    lines = []
    for row in rows:
        if (row["tenant"], row["gpu_type"]) != key:
            continue
        line = f"{plural(row['gpus'], 'GPU')}, {row['mode'].lower().replace('_', ' ')}"
        for name, limit in (("borrows", row["borrow_limit"]), ("lends", row["lend_limit"])):
            line += f", {name} up to {limit}" if limit is not None else ""
        line += f" from {row['since'][:16].replace('T', ' ')}"
        line += f" until {row['until'][:16].replace('T', ' ')}" if row["until"] else ""
        lines.append(line)
    return "; ".join(lines)
