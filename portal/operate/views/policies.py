"""All policies for a pool: promises and requirements, and its next round under each of them."""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from evenshare_core.policies.policy import Policy, Traits
from evenshare_core.policies.registry import POLICIES
from portal.charts.figures import plural
from portal.common.clocks import pool_now
from portal.common.quota_promises import QuotaPromiseText, quota_promise_text
from portal.operate.views.console import console_read, page, pool_of_console
from scheduling.engine.clock import PoolNow
from scheduling.models import Pool
from scheduling.selectors.sharing.quota_promises import promise_with
from scheduling.services.policy_comparison import PolicyOutcome, compare_policies

DECIDE = "decide"  # the query parameter that requests the round


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A policy as the page shows it; `outcome` is of the next round, if requested."""

    name: str
    policy: Policy
    is_present: bool
    promise: QuotaPromiseText | None
    preempts: str
    needs: tuple[str, ...]
    outcome: PolicyOutcome | None = None


@console_read
def policies(request: HttpRequest, name: str) -> HttpResponse:
    """Show every policy that the pool can use."""
    facts, pool = pool_of_console(request, name)
    now = pool_now(facts)
    compared = compare_policies(pool_id=pool.pk, now=now) if DECIDE in request.GET else None
    outcomes = {row.policy: row for row in compared.outcomes} if compared else {}
    rows = [
        PolicyRow(
            one,
            policy,
            one == pool.policy,
            _promise(pool, one, now),
            preempts_text(policy.traits),
            needs(policy.traits),
            outcomes.get(one),
        )
        for one, policy in sorted(
            POLICIES.items(), key=lambda item: (item[0] != pool.policy, item[0])
        )
    ]
    context = {
        "pool": facts,
        "row": pool,
        "policy_rows": rows,
        "compared": compared,
        "count_text": plural(len(rows), "policy", "policies"),
        "decide": DECIDE,
    }
    return page(request, "policies.html", context, key="policies")


def _promise(pool: Pool, name: str, now: PoolNow) -> QuotaPromiseText | None:
    """Return the quota promise with the pool's own options, or another policy's defaults."""
    options = pool.options if name == pool.policy else {}
    longest_s = max(pool.lease_s, pool.most_lease_s)
    promise = promise_with(
        name,
        options,
        round_s=pool.round_s,
        grace_s=pool.grace_s,
        scale=now.scale,
        lease_s=longest_s,
    )
    return quota_promise_text(promise)


def preempts_text(traits: Traits) -> str:
    """Return when a policy may take GPUs from a job with work left."""
    if traits.preempts_running:
        return _("with notice")
    return _("when a lease ends") if traits.preempts else _("never")


def needs(traits: Traits) -> tuple[str, ...]:
    """Return what the policy needs from jobs to keep its promises."""
    return tuple(
        text
        for text, wanted in (
            (_("speeds by GPU type"), traits.needs_profiles),
            (_("estimates"), traits.needs_estimates),
        )
        if wanted
    )
