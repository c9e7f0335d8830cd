"""Audit records as text: the action, and each changed value, before and after."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from portal.charts.figures import plural
from portal.operate.text.audit_values import code_text, value_name
from tenants.language import number
from tenants.selectors.quota_records import dilution_text

ACTION_TEXTS = {
    "quota.saved": gettext_noop("changed quotas"),
    "quota.undone": gettext_noop("undid a change of quotas"),
    "quota.asked": gettext_noop("requested quota"),
    "quota.withdrawn": gettext_noop("withdrew a request for quota"),
    "quota.approved": gettext_noop("approved a request for quota"),
    "quota.declined": gettext_noop("declined a request for quota"),
    "quota.reopened": gettext_noop("opened a request for quota again"),
    "tenant.created": gettext_noop("created"),
    "member.added": gettext_noop("added a member"),
    "member.invited": gettext_noop("invited a member"),
    "member.invitation_revoked": gettext_noop("revoked an invitation"),
    "member.joined": gettext_noop("joined by an invitation"),
    "member.unknown": gettext_noop("tried to invite an unknown person"),
    "member.role_changed": gettext_noop("changed a role"),
    "member.removed": gettext_noop("removed a member"),
    "person.created": gettext_noop("created"),
    "person.deactivated": gettext_noop("deactivated"),
    "person.reactivated": gettext_noop("reactivated"),
    "person.connected": gettext_noop("connected a sign-in"),
    "person.disconnected": gettext_noop("disconnected a sign-in"),
    "person.password_changed": gettext_noop("changed the password"),
    "token.created": gettext_noop("created an API token"),
    "people.changed": gettext_noop("changed how people share"),
    "profile.declared": gettext_noop("declared a job type"),
    "profile.changed": gettext_noop("changed a job type"),
    "profile.dropped": gettext_noop("deleted a job type"),
    "subscription.made": gettext_noop("subscribed to messages"),
    "subscription.ended": gettext_noop("ended a subscription"),
    "token.revoked": gettext_noop("revoked an API token"),
    "access.refused": gettext_noop("was refused"),
    "pool.changed": gettext_noop("changed settings"),
    "clock.changed": gettext_noop("changed the clock"),
    "clock.paused": gettext_noop("paused"),
    "clock.resumed": gettext_noop("resumed"),
    "price.changed": gettext_noop("changed the price"),
    "node.drained": gettext_noop("drained"),
    "node.resumed": gettext_noop("returned to service"),
    "node.changed": gettext_noop("changed"),
    "node.added": gettext_noop("added"),
    "node.removed": gettext_noop("removed"),
    "maintenance.planned": gettext_noop("planned maintenance"),
    "maintenance.ended": gettext_noop("cancelled maintenance"),
    "job.released": gettext_noop("released"),
    "job.held": gettext_noop("put on hold"),
    "job.unheld": gettext_noop("ended the hold"),
    "job.priority": gettext_noop("set the priority"),
    "executor.losses_accepted": gettext_noop("accepted the loss of leases"),
    "lease.written_off": gettext_noop("ended an overdue lease"),
    "sharing.changed": gettext_noop("changed lending and borrowing"),
    "price_limit.changed": gettext_noop("changed the maximum price of its jobs"),
    "offer.made": gettext_noop("offered idle quota"),
    "offer.revoked": gettext_noop("revoked an offer"),
    "credit.terms": gettext_noop("changed limit or budget"),
    "credit.allowance": gettext_noop("posted an allowance"),
    "credit.transfer_asked": gettext_noop("requested a transfer"),
    "credit.transfer_approved": gettext_noop("approved a transfer"),
    "credit.transfer_refused": gettext_noop("refused a transfer"),
    "simulation.asked": gettext_noop("started a simulation"),
    "simulation.cancelled": gettext_noop("cancelled a simulation"),
    "simulation.shown": gettext_noop("showed tenants their results of a replay"),
    "simulation.hidden": gettext_noop("hid tenants' results of a replay"),
}
# Kept for undoing; not shown.
INNER = {"planned_at", "next_round", "undoes", "since"}
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z)$")
_DECIMAL = re.compile(r"-?\d+\.\d+")


@dataclass(frozen=True, slots=True)
class Difference:
    """A changed value; empty if it did not exist."""

    name: str
    before: str
    after: str

    @property
    def is_id(self) -> bool:
        return _is_id(self.after or self.before)


@dataclass(frozen=True, slots=True)
class Subject:
    """A record's subject without its id, the names of its tenants, and the id; "" without one."""

    text: str
    tenants: str
    uid: str


def audit_headline(actors: Sequence[str], *, is_all: bool, is_older: bool) -> str:
    """Return how many entries a page lists, and by how many people: an actor per entry."""
    entries, people = plural(len(actors), "entry", "entries"), _people(len({*actors}))
    if not actors:
        return _("No entry.")
    if is_older:
        return _("Older: {entries} by {people}.").format(entries=entries, people=people)
    if is_all:
        return _("{entries} by {people}.").format(entries=entries, people=people)
    return _("The newest {entries}, by {people}.").format(entries=entries, people=people)


def _people(count: int) -> str:
    return plural(count, "person", "people")


def action_text(action: str) -> str:
    """Return the action as a verb."""
    return _(ACTION_TEXTS[action]) if action in ACTION_TEXTS else action


def subject_of(subject: str, tenants: Mapping[str, str]) -> Subject:
    """Return a subject in parts; `tenants` are names by slug."""
    place = max(subject.rfind(" "), subject.rfind("/")) + 1
    uid = subject[place:] if _is_id(subject[place:]) else ""
    kind, _space, rest = subject.partition(" ")
    slugs = [rest] if kind == "tenant" else rest.split(", ")[1:]
    names = [tenants[slug] for slug in slugs if tenants.get(slug, slug) != slug]
    return Subject(subject.removesuffix(uid).rstrip(", "), ", ".join(names), uid)


def _is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield every changed value of a record, nested values by their path."""
    if "periods" in before or "periods" in after:
        yield from _quotas(before.get("periods", ()), after.get("periods", ()))
        for row in after.get("dilutes", ()):
            yield Difference(_("scaled down"), "", dilution_text(row))
        return
    old, new = dict(_flat(before)), dict(_flat(after))
    # An end is after its begin; the database sorts names by length.
    for name in sorted({**old, **new}, key=lambda name: name == "ends_at"):
        was, becomes = old.get(name, ""), new.get(name, "")
        # A removed value has no "after"; a member's name is shown even if it is unchanged.
        if was != becomes or name == "member":
            # An invitation by a link has no name.
            is_blank = name == "member" and not (was or becomes)
            after_text = _("anyone with the link") if is_blank else becomes
            yield Difference(value_name(name), was, after_text)


def _flat(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if name in INNER and not path:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}, ")
        else:
            yield path + name, _shown(value, name)


def _shown(value: object, name: str) -> str:
    if isinstance(value, list):
        return ", ".join(_shown(item, name) for item in value)
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if value is None:
        return _("none")
    text = str(value)
    if _INSTANT.match(text):
        return _minute(text)
    if name != "name" and _DECIMAL.fullmatch(text):
        # As an amount, also the decimal numbers of speeds and prices: at least two decimals.
        return number(Decimal(text), max(2, len(text.rstrip("0").partition(".")[2])))
    return code_text(name, text)


def _quotas(before: Any, after: Any) -> Iterator[Difference]:
    """Yield a line per tenant and GPU type whose periods differ."""
    types = sorted({(row["tenant"], row["gpu_type"]) for row in (*before, *after)})
    for tenant, gpu_type in types:
        key = (tenant, gpu_type)
        was, becomes = _periods(before, key), _periods(after, key)
        yield Difference(f"{tenant}, {gpu_type}", was or _("no quota"), becomes or _("no quota"))


def _periods(rows: Any, key: tuple[str, str]) -> str:
    return "; ".join(_period(row) for row in rows if (row["tenant"], row["gpu_type"]) == key)


def _period(row: Mapping[str, Any]) -> str:
    parts = [plural(row["gpus"], "GPU"), code_text("mode", row["mode"])]
    if row["borrow_limit"] is not None:
        parts.append(_("borrows up to {limit}").format(limit=row["borrow_limit"]))
    if row["lend_limit"] is not None:
        parts.append(_("lends up to {limit}").format(limit=row["lend_limit"]))
    text = _("{quota} from {since} until {until}") if row["until"] else _("{quota} from {since}")
    return text.format(
        quota=", ".join(parts), since=_minute(row["since"]), until=_minute(row["until"] or "")
    )


def _minute(at: str) -> str:
    return f"{at[:16].replace('T', ' ')} UTC" if at else ""
