"""The queue of alerts that need a person, worst first: the event, its effect, the remedy."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from portal.charts.figures import credits_text, plural, thousands
from portal.charts.zones import clock_text
from portal.common.clocks import clocks_by_pool
from portal.common.credit_text import budget_text
from portal.operate.text.alerts import Alert
from portal.operate.text.machine import machine_alerts
from portal.operate.text.overdue import orphans_alert, overdue_alert
from portal.operate.text.round_alerts import round_alerts
from portal.site.unreadable import unreadable_rows
from scheduling.models import ExecutorHealth, Job, Node
from scheduling.selectors.operate import console as operate
from scheduling.selectors.operate.overdue import orphan_processes, overdue_pools
from scheduling.selectors.pools.executors import is_refusal
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.pools.nodes import NodeStatus, unavailable_nodes
from scheduling.selectors.stored_texts import STORED
from tenants.models import Budget
from tenants.selectors.credit import PeriodUse, used_up_budgets

# The kinds of unreadable rows (see `tenants.unreadable`).
UNREADABLE_TEXTS = {"value of a job": gettext_noop("value of a job")}

WORST_FIRST = ("bad", "warn", "note")


def queue(
    pools: Sequence[PoolFacts], now: Mapping[int, datetime], *, with_jobs: bool
) -> list[Alert]:
    """Return all alerts, the worst kind first, and of each kind failing rounds first.

    Eleven queries, and two more if leases are being stopped. In addition, one for each book with
    a budget in force, and two for each pool, or three if orders to its executor are delayed.
    `with_jobs`: the reader may see all tenants' jobs, so quarantined jobs are named.
    """
    quarantined = operate.quarantined_jobs() if with_jobs else []
    times = clocks_by_pool(pools)
    alerts = [
        *round_alerts(pools),
        *machine_alerts(),
        *_executors(pools, now),
        *(overdue_alert(row, times[row.pool]) for row in overdue_pools(pools, now)),
        *(orphans_alert(row) for row in orphan_processes()),
        *(_quarantined(row) for row in quarantined),
        *(_unreadable(*kind, with_jobs=with_jobs) for kind in unreadable_rows().items()),
        *(
            _off(row)
            for row in sorted(unavailable_nodes(), key=lambda row: row.effective == "drained")
        ),
        *(_excess(row) for row in operate.quotas_above_capacity(dict(now))),
        *(_spent(row) for row in operate.spent_budgets()),
        *(_used_up(*row) for row in used_up_budgets(_now_by_book(pools, now))),
        *(alert for facts in pools if (alert := _paused(facts)) is not None),
    ]
    return sorted(alerts, key=lambda alert: WORST_FIRST.index(alert.kind))


def executor_label(error: str) -> str:
    """Return how an executor fails, by its last error."""
    return _("Executor refuses") if is_refusal(error) else _("Executor does not answer")


def orders_label(error: str) -> str:
    """Return why orders to an executor are delayed; without an error, no order was sent."""
    return executor_label(error) if error else _("Calls waiting")


def _executors(pools: Sequence[PoolFacts], now: Mapping[int, datetime]) -> list[Alert]:
    """Return alerts of leases that vanished at once, of failing engines, and of delayed orders."""
    failing = operate.failing_executors()
    down = [row for row in failing if row.open_until is not None]
    silent = {row.pool.name for row in down}
    return [
        *(_frozen(row, row.frozen_since) for row in failing if row.frozen_since is not None),
        *(_down(row) for row in down),
        # Delayed orders to a failing engine do not get a second alert.
        *(
            _stuck(row)
            for row in operate.stuck_intents(list(pools), dict(now))
            if row.pool not in silent
        ),
    ]


def _frozen(row: ExecutorHealth, since: datetime) -> Alert:
    pool = row.pool.name
    then = (
        _("Their loss is accepted: the next round ends them.")
        if set(row.missing) <= set(row.accepted)
        else _(
            "Because many are missing at once, they do not count as lost. An operator can"
            " accept their loss."
        )
    )
    since_text = _("Since {at}, wall clock.").format(at=clock_text(since))
    return Alert(
        f"frozen-{pool}",
        "bad",
        _("Leases missing"),
        _("{missing} of {leases} of {pool} are not listed by its executor.").format(
            missing=thousands(len(row.missing)), leases=plural(row.launched, "lease"), pool=pool
        ),
        f"{since_text} {then}",
        reverse("operate-health", args=[pool]),
    )


def _down(row: ExecutorHealth) -> Alert:
    pool, since = row.pool.name, row.failing_since or row.open_until
    advice = _(
        "The portal retries every 30 seconds, later every five minutes; leases stay, and none"
        " counts as lost."
    )
    return Alert(
        f"down-{pool}",
        "bad",
        executor_label(row.error),
        ngettext(
            "The executor of {pool} failed {count} time in a row since {at}, wall clock.",
            "The executor of {pool} failed {count} times in a row since {at}, wall clock.",
            row.failures,
        ).format(
            pool=pool,
            count=thousands(row.failures),
            at=clock_text(since) if since else "",
        ),
        f"{STORED.shown(row.error).rstrip('.')}. {advice}",
        reverse("operate-health", args=[pool]),
    )


def _stuck(row: operate.StuckIntents) -> Alert:
    text = ngettext(
        "Each round tries again, {count} time so far.",
        "Each round tries again, {count} times so far.",
        row.attempts,
    ).format(count=thousands(row.attempts))
    if row.error:
        last = _("The last error: {error}").format(error=STORED.shown(row.error))
        text = f"{text} {last}"
    return Alert(
        f"stuck-{row.pool}",
        "bad",
        orders_label(row.error),
        ngettext(
            "{count} call to the executor of {pool} failed.",
            "{count} calls to the executor of {pool} failed.",
            row.count,
        ).format(count=thousands(row.count), pool=row.pool),
        text,
        reverse("operate-health", args=[row.pool]),
    )


def _quarantined(row: Job) -> Alert:
    advice = _("Rounds skip it until an operator releases it.")
    return Alert(
        f"aside-{row.uid}",
        "warn",
        _("Job quarantined"),
        _("The policy of {pool} fails with {job} of {tenant}.").format(
            pool=row.pool.name, job=row.name, tenant=row.tenant.name
        ),
        f"{row.quarantine} {advice}",
        reverse("job", args=[row.uid]),
        release=reverse("operate-release", args=[row.uid]),
    )


def _unreadable(what: str, rows: Mapping[str, str], *, with_jobs: bool) -> Alert:
    row, why = next(iter(rows.items()))
    text = _(
        "Pages skip it. The database was changed from outside the portal: compare with a backup."
    )
    if with_jobs:
        last = _("The last one: {row}: {reason}.").format(row=row, reason=why)
        text = f"{last} {text}"
    return Alert(
        f"unreadable-{'-'.join(what.split())}",
        "warn",
        _("Rows unreadable"),
        ngettext(
            "{count} row with the {kind} cannot be read.",
            "{count} rows with the {kind} cannot be read.",
            len(rows),
        ).format(count=thousands(len(rows)), kind=_(UNREADABLE_TEXTS.get(what, what))),
        text,
        reverse("job", args=[row]) if with_jobs else reverse("operate"),
    )


def _off(row: NodeStatus) -> Alert:
    lost = row.effective == Node.State.LOST
    label = _("Node drained")
    text = _("It is empty.")
    if row.held:
        label = _("Node draining")
        text = _("Leases still hold {gpus} there.").format(gpus=plural(row.held, "GPU"))
    if row.engine_reason:
        text += " " + _("Set {reason}.").format(reason=row.engine_reason)
    if row.engine_trouble:
        text += " " + _("Its engine refuses: {reason}.").format(
            reason=STORED.shown(row.engine_trouble)
        )
    return Alert(
        f"node-{row.pool}-{row.name}",
        "bad" if lost else "note",
        _("Node lost") if lost else label,
        _("{node} of {pool} takes no lease: {gpus} out of use.").format(
            node=row.name, pool=row.pool, gpus=plural(row.gpus, "GPU")
        ),
        text,
        reverse("operate-nodes", args=[row.pool]),
    )


def _excess(row: operate.QuotaExcess) -> Alert:
    return Alert(
        f"excess-{row.pool}-{row.gpu_type}",
        "warn",
        _("Quotas too large"),
        _("Quotas of {pool} exceed its {gpu_type} GPUs by {excess}.").format(
            pool=row.pool, gpu_type=row.gpu_type, excess=thousands(row.quota - row.capacity)
        ),
        _(
            "Quotas sum to {quota}, and {capacity} GPUs are up: until this is fixed, each quota is"
            " scaled down in proportion."
        ).format(quota=thousands(row.quota), capacity=thousands(row.capacity)),
        reverse("operate-quotas", args=[row.pool]),
        _("Open quotas"),
    )


def _spent(row: Budget) -> Alert:
    tenant = row.tenant.slug
    return Alert(
        f"spent-{tenant}-{row.book}",
        "warn",
        _("Credit limit reached"),
        _("{tenant} has no spendable credits in {book}.").format(tenant=tenant, book=row.book),
        _("Its limit is {limit}. Running jobs go on; borrowing has stopped.").format(
            limit=credits_text(row.credit_limit)
        ),
        reverse("operate-tenant", args=[tenant]),
    )


def _now_by_book(pools: Sequence[PoolFacts], now: Mapping[int, datetime]) -> dict[str, datetime]:
    """Return each book's time, which is that of its oldest pool (see `billing.selectors.clock`)."""
    oldest_last = sorted(pools, key=lambda facts: facts.id, reverse=True)
    return {facts.book: now[facts.id] for facts in oldest_last}


def _used_up(row: Budget, use: PeriodUse) -> Alert:
    tenant, shown = row.tenant, budget_text(use)
    texts = [
        _(
            "Of {amount} credits for {first} to {last}, {spent} are spent and {committed}"
            " committed."
        ).format(
            amount=credits_text(shown.amount),
            first=shown.first,
            last=shown.last,
            spent=credits_text(shown.spent),
            committed=credits_text(shown.committed),
        ),
        _("Borrowing has stopped.") if shown.stops else _("Borrowing continues."),
        _("When the budget is used up: {action}.").format(action=shown.action),
    ]
    return Alert(
        f"used-{tenant.slug}-{row.book}",
        "warn",
        _("Budget used up"),
        _("{tenant} used {percent} of its budget in {book}.").format(
            tenant=tenant.name, percent=shown.percent_text, book=row.book
        ),
        " ".join(texts),
        reverse("operate-credit-terms", args=[tenant.slug, row.book]),
    )


def _paused(facts: PoolFacts) -> Alert | None:
    clock = facts.clock
    if not clock.paused or clock.pause_reason == "unwatched":
        return None
    return Alert(
        f"paused-{facts.name}",
        "note",
        _("Pool paused"),
        _("The clock of {pool} is stopped.").format(pool=facts.name),
        _("No round is decided and no lease ends until it is resumed."),
        reverse("operate-pool", args=[facts.name]),
    )
