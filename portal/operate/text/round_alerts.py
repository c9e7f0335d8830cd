"""Alerts of the operator's queue about rounds: failing, damaged, not sealed, late."""

from collections.abc import Sequence

from django.urls import reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.charts.figures import duration, thousands
from portal.charts.zones import clock_text
from portal.common.clocks import LATE_INTERVALS
from portal.operate.text.alerts import Alert
from scheduling.engine.clock import silent_s
from scheduling.models import RoundFailure, RoundSealing
from scheduling.selectors.operate import console as operate
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.rounds.sealing import (
    BREAK,
    DAMAGE,
    RoundFindings,
    findings_of,
    sealings,
)
from scheduling.selectors.rounds.worker import round_activity
from scheduling.selectors.stored_texts import STORED

# Beat wakes the worker every second; on a busy machine it may take longer.
WORKER_SILENT_S = 30


def round_alerts(pools: Sequence[PoolFacts]) -> list[Alert]:
    """Return the alerts, failing rounds first."""
    return [
        *(_failing(row) for row in operate.pool_failures()),
        *(_damaged(row) for row in operate.damaged_rounds()),
        *_chained(),
        *_late(pools),
    ]


def _failing(row: RoundFailure) -> Alert:
    pool = row.pool.name
    effect = _("Leases stay; running jobs go on at their last price.")
    return Alert(
        f"failing-{pool}",
        "bad",
        _("Rounds fail"),
        ngettext(
            "{count} round of {pool} failed since {at}, wall clock.",
            "{count} rounds of {pool} failed since {at}, wall clock.",
            row.count,
        ).format(count=thousands(row.count), pool=pool, at=clock_text(row.first_at)),
        f"{STORED.shown(row.error)} {effect}",
        reverse("operate-health", args=[pool]),
    )


def _damaged(row: RoundFindings) -> Alert:
    advice = _("Compare with a backup; check_ledger lists other changed records.")
    return Alert(
        f"damaged-{row.pool}",
        "bad",
        _("Rounds damaged"),
        ngettext(
            "{count} stored round of {pool} is changed after writing, or does not follow from the"
            " round before.",
            "{count} stored rounds of {pool} are changed after writing, or do not follow from the"
            " round before.",
            row.count,
        ).format(count=thousands(row.count), pool=row.pool),
        f"{capfirst(row.text)}. {advice}",
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
    advice = _(
        "The state that the pool carries from round to round was changed from outside. Compare"
        " with a backup; the record stays in the chain."
    )
    finding = _("Round {number}: {finding}").format(number=row.number, finding=row.text)
    return Alert(
        f"broken-{row.pool}",
        "bad",
        _("Chain broken"),
        ngettext(
            "{count} round of {pool} does not follow from the round before.",
            "{count} rounds of {pool} do not follow from the round before.",
            row.count,
        ).format(count=thousands(row.count), pool=row.pool),
        f"{finding} {advice}",
        reverse("round", args=[row.pool, row.number]),
    )


def _unsealed(row: RoundSealing) -> Alert:
    pool, number = row.pool.name, row.number + 1
    effect = _("Rounds go on; tenants cannot verify them until this is fixed.")
    return Alert(
        f"unsealed-{pool}",
        "bad",
        _("Rounds not sealed"),
        _("Round {number} of {pool} and later rounds cannot be sealed.").format(
            number=number, pool=pool
        ),
        f"{row.failure} {effect}",
        reverse("round", args=[pool, number]),
    )


def _sealed_damaged(row: RoundFindings) -> Alert:
    effect = _("No tenant can recompute it; its record has the reason.")
    return Alert(
        f"sealed-damaged-{row.pool}",
        "warn",
        _("Rounds sealed as damaged"),
        ngettext(
            "{count} round of {pool} was damaged when sealed.",
            "{count} rounds of {pool} were damaged when sealed.",
            row.count,
        ).format(count=thousands(row.count), pool=row.pool),
        f"{capfirst(row.text)}. {effect}",
        reverse("round", args=[row.pool, row.number]),
    )


def _late(pools: Sequence[PoolFacts]) -> list[Alert]:
    """Return the alerts of late pools, the latest first.

    If there are any, one query for the worker's activity.
    """
    silent = [(facts, silent_s(facts.clock, facts.wall, facts.checked_at)) for facts in pools]
    late = [(facts, for_s) for facts, for_s in silent if for_s > LATE_INTERVALS * facts.round_s]
    late.sort(key=lambda one: -one[1])
    why = _worker_text(*round_activity()) if late else ""
    return [_late_alert(facts, for_s, why) for facts, for_s in late]


def _late_alert(facts: PoolFacts, for_s: float, why: str) -> Alert:
    due = _("One is due every {time}. Leases stay, running jobs go on.").format(
        time=duration(facts.round_s)
    )
    return Alert(
        f"late-{facts.name}",
        "bad",
        _("Rounds late"),
        _("Pool {pool} had no round for {time}.").format(pool=facts.name, time=duration(for_s)),
        f"{due} {why}",
        reverse("operate-health", args=[facts.name]),
    )


def _worker_text(running: Sequence[str], ended_s: float | None) -> str:
    """Return the activity of the rounds worker, by the rounds of all pools."""
    if running:
        return _("The round worker is busy with {pools}.").format(pools=", ".join(running))
    if ended_s is not None and ended_s < WORKER_SILENT_S:
        return _("The round worker is behind: its last round ended {time} ago.").format(
            time=duration(ended_s)
        )
    return _("No pool has rounds: check that beat and the round worker are running.")
