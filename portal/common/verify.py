"""Verification panels: the client's command, the head, and the last verification."""

from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.charts.figures import plural, thousands
from portal.charts.page import VerifyPanel
from portal.charts.zones import full_text
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.rounds.verifications import (
    SaidVerification,
    last_verification,
    log_head,
)
from tenants.models import Tenant
from tenants.scopes import site_reading
from tenants.selectors.access import Access

ROUNDS, STATEMENT = "rounds", "statement"
DIGITS = 12


def round_panel(facts: PoolFacts, number: int, head: tuple[int, str], who: Access) -> VerifyPanel:
    """Return how to verify a round, with one query. Call it in the site's scope.

    `head`: the size and the root of the log, as `log_head` returns them.
    """
    last = None
    if who.user_id is not None:
        last = last_verification(who.user_id, facts.id, ROUNDS)
    return VerifyPanel(
        command=f"evenshare round verify {number} --pool {facts.name}",
        head=head_text(facts.name, *head),
        last=rounds_text(facts.name, last),
    )


def statement_panel(
    facts: PoolFacts, tenant: Tenant, since: datetime, until: datetime, who: Access
) -> VerifyPanel:
    """Return how to verify a tenant's charges and income between two instants of pool time.

    Call it in the tenant's scope. Three queries.
    """
    with site_reading():
        head = log_head(facts.name)
    last = None
    if who.user_id is not None:
        last = last_verification(who.user_id, facts.id, STATEMENT, tenant_id=tenant.pk)
    return VerifyPanel(
        command=statement_command(facts.name, tenant.slug, since, until),
        head=head_text(facts.name, *head),
        last=statement_text(facts.name, tenant.name, last),
    )


def statement_command(pool: str, tenant: str, since: datetime, until: datetime) -> str:
    """Return the client's command that recomputes the money of a period."""
    return (
        f"evenshare statement verify --pool {pool} --tenant {tenant}"
        f" --from {_instant(since)} --to {_instant(until)}"
    )


def head_text(pool: str, size: int, root: str) -> str:
    """Return the current head's size and the first digits of its root."""
    if not root:
        text = _("The log of {pool} cannot be proven at the moment; report this to an operator.")
        return text.format(pool=pool)
    if not size:
        return _("No round of {pool} is in its log yet.").format(pool=pool)
    text = _("Signed head of {pool}: {rounds}, root {root}…")
    return text.format(pool=pool, rounds=plural(size, "round"), root=root[:DIGITS])


def rounds_text(pool: str, last: SaidVerification | None) -> str:
    """Return when a person last verified rounds of a pool."""
    if last is None or last.last is None:
        return _("You have not verified {pool} yet.").format(pool=pool)
    return _(
        "You verified {pool} last on {date}, up to round {number}, {result}, as reported by your"
        " client."
    ).format(
        pool=pool,
        date=full_text(last.said_at),
        number=thousands(last.last),
        result=came_out(last),
    )


def statement_text(pool: str, tenant: str, last: SaidVerification | None) -> str:
    """Return when a person last verified a statement of a tenant."""
    if last is None:
        text = _("You have not verified a statement of {tenant} in {pool} yet.")
        return text.format(tenant=tenant, pool=pool)
    return _(
        "You verified a statement of {tenant} last on {date}, {period}, {result}, as reported by"
        " your client."
    ).format(
        tenant=tenant,
        date=full_text(last.said_at),
        period=stretch(last),
        result=came_out(last),
    )


def came_out(last: SaidVerification) -> str:
    """Return the reported result: errors, parts that are not proven, or all proven."""
    if last.findings:
        text = ngettext("with {count} finding", "with {count} findings", last.findings)
        return text.format(count=thousands(last.findings))
    if last.unproven is None:
        return _("without findings")
    if last.unproven:
        return _("no errors, {count} not proven").format(count=thousands(last.unproven))
    return _("all requested parts proven")


def stretch(last: SaidVerification) -> str:
    """Return the period of a verified statement on the pool's clock; empty for rounds."""
    if last.since is None or last.until is None:
        return ""
    return _("{since} to {until}").format(since=_pool(last.since), until=_pool(last.until))


def _instant(at: datetime) -> str:
    """Return a day if the instant is its first, as the client parses it."""
    text = f"{at:%Y-%m-%dT%H:%M:%SZ}"
    return text.removesuffix("T00:00:00Z")


def _pool(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC".removesuffix(" 00:00 UTC")
