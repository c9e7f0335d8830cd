"""The queue of alerts that need a person, worst first: the event, its effect, the remedy."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from django.urls import reverse

from portal.charts.figures import credits_text, duration, plural, thousands
from portal.common.clocks import LATE_INTERVALS
from portal.common.credit_text import budget_text
from portal.operate.text.alerts import Alert
from portal.operate.text.machine import machine_alerts
from portal.operate.text.overdue import orphans_alert, overdue_alert
from portal.site.unreadable import unreadable_rows
from scheduling.engine.clock import silent_s
from scheduling.models import ExecutorHealth, Job, Node, RoundFailure, RoundSealing
from scheduling.selectors.operate import console as operate
from scheduling.selectors.operate.overdue import orphan_processes, overdue_pools
from scheduling.selectors.pools.executors import is_refusal
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.pools.nodes import NodeStatus, unavailable_nodes
from scheduling.selectors.rounds.sealing import (
    BREAK,
    DAMAGE,
    RoundFindings,
    findings_of,
    sealings,
)
from scheduling.selectors.rounds.worker import round_activity
from tenants.models import Budget
from tenants.selectors.credit import PeriodUse, used_up_budgets

# Beat wakes the worker every second; on a busy machine it may take longer.
WORKER_SILENT_S = 30


def queue(
    pools: Sequence[PoolFacts], now: Mapping[int, datetime], *, with_jobs: bool
) -> list[Alert]:
    """Return all alerts, failing rounds first.

    Eleven queries, and two more if leases are being stopped. In addition, one for each book with
    a budget in force, and two for each pool, or three if orders to its executor are delayed.
    `with_jobs`: the reader may see all tenants' jobs, so quarantined jobs are named.
    """
    quarantined = operate.quarantined_jobs() if with_jobs else []
    return [
        *(_failing(row) for row in operate.pool_failures()),
        *(_damaged(row) for row in operate.damaged_rounds()),
        *_chained(),
        *_late(pools),
        *machine_alerts(),
        *_executors(pools, now),
        *(overdue_alert(row) for row in overdue_pools(pools, now)),
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


def _failing(row: RoundFailure) -> Alert:
    pool = row.pool.name
    return Alert(
        f"failing-{pool}",
        "bad",
        "Rounds fail",
        f"{plural(row.count, 'round')} of {pool} failed since {row.first_at:%H:%M} UTC,"
        " wall clock.",
        f"{row.error} Leases stay; running jobs go on at their last price.",
        reverse("operate-health", args=[pool]),
    )


def _damaged(row: RoundFindings) -> Alert:
    verb = "is" if row.count == 1 else "are"
    return Alert(
        f"damaged-{row.pool}",
        "bad",
        "Rounds damaged",
        f"{plural(row.count, 'stored round')} of {row.pool} {verb} changed after writing, or"
        f" {'does' if row.count == 1 else 'do'} not follow from the round before.",
        f"{row.text[:1].upper()}{row.text[1:]}. Compare with a backup; check_ledger lists other"
        " changed records.",
        reverse("round", args=[row.pool, row.number]),
    )


def _chained() -> list[Alert]:
    """Return alerts of sealed rounds, first of those that do not follow from the one before."""
    rows = sealings()
    return [
        *(_broken(one) for row in rows for one in findings_of(row, BREAK)),
        *(_unsealed(row) for row in rows if row.failure),
        *(_sealed_damaged(one) for row in rows for one in findings_of(row, DAMAGE)),
    ]


def _broken(row: RoundFindings) -> Alert:
    verb = "does" if row.count == 1 else "do"
    return Alert(
        f"broken-{row.pool}",
        "bad",
        "Chain broken",
        f"{plural(row.count, 'round')} of {row.pool} {verb} not follow from the round before.",
        f"Round {row.number}: {row.text} The state that the pool carries from round to round was"
        " changed from outside. Compare with a backup; the record stays in the chain.",
        reverse("round", args=[row.pool, row.number]),
    )


def _unsealed(row: RoundSealing) -> Alert:
    pool, number = row.pool.name, row.number + 1
    return Alert(
        f"unsealed-{pool}",
        "bad",
        "Rounds not sealed",
        f"Round {number} of {pool} and later rounds cannot be sealed.",
        f"{row.failure} Rounds go on; tenants cannot verify them until this is fixed.",
        reverse("round", args=[pool, number]),
    )


def _sealed_damaged(row: RoundFindings) -> Alert:
    verb = "was" if row.count == 1 else "were"
    return Alert(
        f"sealed-damaged-{row.pool}",
        "warn",
        "Rounds sealed as damaged",
        f"{plural(row.count, 'round')} of {row.pool} {verb} damaged when sealed.",
        f"{row.text[:1].upper()}{row.text[1:]}. No tenant can recompute it; its record has the"
        " reason.",
        reverse("round", args=[row.pool, row.number]),
    )


def _late(pools: Sequence[PoolFacts]) -> list[Alert]:
    """Return the alerts of late pools. If there are any, one query for the worker's activity."""
    silent = [(facts, silent_s(facts.clock, facts.wall, facts.checked_at)) for facts in pools]
    late = [(facts, for_s) for facts, for_s in silent if for_s > LATE_INTERVALS * facts.round_s]
    why = _worker_text(*round_activity()) if late else ""
    return [
        Alert(
            f"late-{facts.name}",
            "bad",
            "Rounds late",
            f"Pool {facts.name} had no round for {duration(for_s)}.",
            f"One is due every {duration(facts.round_s)}. Leases stay, running jobs go on. {why}",
            reverse("operate-health", args=[facts.name]),
        )
        for facts, for_s in late
    ]


def _worker_text(running: Sequence[str], ended_s: float | None) -> str:
    """Return the activity of the rounds worker, by the rounds of all pools."""
    if running:
        return f"The round worker is busy with {', '.join(running)}."
    if ended_s is not None and ended_s < WORKER_SILENT_S:
        return f"The round worker is behind: its last round ended {duration(ended_s)} ago."
    return "No pool has rounds: check that beat and the round worker are running."


def executor_label(error: str) -> str:
    """Return how an executor fails, by its last error."""
    return "Executor refuses" if is_refusal(error) else "Executor does not answer"


def orders_label(error: str) -> str:
    """Return why orders to an executor are delayed; without an error, no order was sent."""
    return executor_label(error) if error else "Calls waiting"


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
        "Their loss is accepted: the next round ends them."
        if set(row.missing) <= set(row.accepted)
        else "Because many are missing at once, they do not count as lost. An operator can"
        " accept their loss."
    )
    return Alert(
        f"frozen-{pool}",
        "bad",
        "Leases missing",
        f"{thousands(len(row.missing))} of {plural(row.launched, 'lease')} of {pool} are not listed"
        " by its executor.",
        f"Since {since:%H:%M} UTC, wall clock. {then}",
        reverse("operate-health", args=[pool]),
    )


def _down(row: ExecutorHealth) -> Alert:
    pool = row.pool.name
    return Alert(
        f"down-{pool}",
        "bad",
        executor_label(row.error),
        f"The executor of {pool} failed {plural(row.failures, 'time')} in a row since"
        f" {row.failing_since or row.open_until:%H:%M} UTC, wall clock.",
        f"{row.error.rstrip('.')}. The portal retries every 30 seconds, later every five minutes;"
        " leases stay, and none counts as lost.",
        reverse("operate-health", args=[pool]),
    )


def _stuck(row: operate.StuckIntents) -> Alert:
    why = f" The last error: {row.error}" if row.error else ""
    return Alert(
        f"stuck-{row.pool}",
        "bad",
        orders_label(row.error),
        f"{plural(row.count, 'call')} to the executor of {row.pool} failed.",
        f"Each round tries again, {plural(row.attempts, 'time')} so far.{why}",
        reverse("operate-health", args=[row.pool]),
    )


def _quarantined(row: Job) -> Alert:
    return Alert(
        f"aside-{row.uid}",
        "warn",
        "Job quarantined",
        f"The policy of {row.pool.name} fails with {row.name} of {row.tenant.name}.",
        f"{row.quarantine} Rounds skip it until an operator releases it.",
        reverse("job", args=[row.uid]),
        release=reverse("operate-release", args=[row.uid]),
    )


def _unreadable(what: str, rows: Mapping[str, str], *, with_jobs: bool) -> Alert:
    row, why = next(iter(rows.items()))
    named = f"The last one: {row}: {why}. " if with_jobs else ""
    return Alert(
        f"unreadable-{'-'.join(what.split())}",
        "warn",
        "Rows unreadable",
        f"{plural(len(rows), 'row')} with the {what} cannot be read.",
        f"{named}Pages skip it. The database was changed from outside the portal: compare with a"
        " backup.",
        reverse("job", args=[row]) if with_jobs else reverse("operate"),
    )


def _off(row: NodeStatus) -> Alert:
    lost = row.effective == Node.State.LOST
    text = f"Leases still hold {plural(row.held, 'GPU')} there." if row.held else "It is empty."
    if row.engine_reason:
        text += f" Set {row.engine_reason}."
    if row.engine_trouble:
        text += f" Its engine refuses: {row.engine_trouble}."
    return Alert(
        f"node-{row.pool}-{row.name}",
        "bad" if lost else "note",
        "Node lost" if lost else "Node draining" if row.held else "Node drained",
        f"{row.name} of {row.pool} takes no lease: {plural(row.gpus, 'GPU')} out of use.",
        text,
        reverse("operate-nodes", args=[row.pool]),
    )


def _excess(row: operate.QuotaExcess) -> Alert:
    return Alert(
        f"excess-{row.pool}-{row.gpu_type}",
        "warn",
        "Quotas too large",
        f"Quotas of {row.pool} exceed its {row.gpu_type} GPUs by {row.quota - row.capacity}.",
        f"Quotas sum to {thousands(row.quota)}, and {thousands(row.capacity)} GPUs are up: until"
        " this is fixed, each quota is scaled down in proportion.",
        reverse("operate-quotas", args=[row.pool]),
        "Open quotas",
    )


def _spent(row: Budget) -> Alert:
    tenant = row.tenant.slug
    return Alert(
        f"spent-{tenant}-{row.book}",
        "warn",
        "Credit limit reached",
        f"{tenant} has no spendable credits in {row.book}.",
        f"Its limit is {credits_text(row.credit_limit)}. Running jobs go on; borrowing has"
        " stopped.",
        reverse("operate-tenant", args=[tenant]),
    )


def _now_by_book(pools: Sequence[PoolFacts], now: Mapping[int, datetime]) -> dict[str, datetime]:
    """Return each book's time, which is that of its oldest pool (see `billing.selectors.clock`)."""
    oldest_last = sorted(pools, key=lambda facts: facts.id, reverse=True)
    return {facts.book: now[facts.id] for facts in oldest_last}


def _used_up(row: Budget, use: PeriodUse) -> Alert:
    tenant, shown = row.tenant, budget_text(use)
    what = "Borrowing has stopped" if shown.stops else "Borrowing continues"
    return Alert(
        f"used-{tenant.slug}-{row.book}",
        "warn",
        "Budget used up",
        f"{tenant.name} used {shown.percent_text} of its budget in {row.book}.",
        f"Of {credits_text(shown.amount)} credits for {shown.first} to {shown.last},"
        f" {credits_text(shown.spent)} are spent and {credits_text(shown.committed)} committed."
        f" {what}; when it is used up: {shown.action}.",
        reverse("operate-credit-terms", args=[tenant.slug, row.book]),
    )


def _paused(facts: PoolFacts) -> Alert | None:
    clock = facts.clock
    if not clock.paused or clock.pause_reason == "unwatched":
        return None
    return Alert(
        f"paused-{facts.name}",
        "note",
        "Pool paused",
        f"The clock of {facts.name} is stopped.",
        "No round is decided and no lease ends until it is resumed.",
        reverse("operate-pool", args=[facts.name]),
    )
