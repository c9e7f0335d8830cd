"""The health of a pool's rounds: last round, failures, fallbacks, durations."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext, pgettext

from evenshare_core.units import MILLISECOND_US
from portal.charts.figures import duration, plural, thousands
from portal.charts.notes import LineItem, Stat
from portal.charts.page import LATE, PAUSED
from portal.charts.zones import seconds_text
from portal.common.clocks import clocks, pool_now
from portal.common.forms import Field, request_inputs, text, typed_request
from portal.operate.text.overdue import overdue_row, read_key
from portal.operate.text.queue import executor_label, orders_label
from portal.operate.text.space import space_rows, space_stats
from portal.operate.text.verify import verify_rows, verify_title
from portal.operate.views.console import (
    Unchanged,
    actor_of,
    console,
    no_such_button,
    page,
    pool_of_console,
    tell,
)
from portal.site.context import line_of, verify_last_command
from scheduling.models import Pool, Round, RoundFailure
from scheduling.requests.leases import EndLeaseRequest
from scheduling.selectors.operate import console as operate
from scheduling.selectors.operate.losses import frozen_leases
from scheduling.selectors.operate.overdue import overdue_leases
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.rounds.space import round_space
from scheduling.selectors.rounds.verifications import verifying_tenants
from scheduling.services.executors import accept_losses
from scheduling.services.write_offs import NO_SUCH_LEASE, end_lease
from tenants.input.errors import InvalidInputError, invalid
from tenants.scopes import site_scope
from tenants.selectors.quotas import pool_tenants

# Number of missing leases that the page names.
LOSSES = 50
PROCESSES = (
    ("", gettext_noop("Choose")),
    ("gone", gettext_noop("gone: give its GPUs to other jobs")),
    ("unknown", gettext_noop("unknown: drain its nodes")),
)


@console
def health(request: HttpRequest, name: str) -> HttpResponse:
    """Show a pool's last rounds and its problems, with buttons to accept the loss of leases."""
    facts, pool = pool_of_console(request, name)
    errors: dict[str, str] = {}
    if request.method == "POST":
        do = text(request.POST, "do")
        try:
            tell(request, ACTS.get(do, no_such_button)(request, pool))
        except InvalidInputError as error:
            errors = error.by_field
        else:
            return redirect("operate-health", name)
    return _show(request, facts, pool, errors)


def _accept_losses(request: HttpRequest, pool: Pool) -> str:
    leases, is_new = accept_losses(
        actor=actor_of(request),
        pool=pool,
        reason=text(request.POST, "reason"),
        seen=text(request.POST, "seen"),
    )
    values = {"pool": pool.name, "leases": plural(leases, "lease")}
    if is_new:
        return _("Accepted: the next round of {pool} ends {leases} as lost.").format(**values)
    known = _("Already accepted: the next round of {pool} ends {leases} as lost.")
    return Unchanged(known.format(**values))


def _end_lease(request: HttpRequest, pool: Pool) -> str:
    named = read_key(text(request.POST, "lease"))
    if named is None:
        raise invalid("lease", _(NO_SUCH_LEASE))
    job, number = named
    wanted = typed_request(EndLeaseRequest, request.POST)
    is_new = end_lease(actor=actor_of(request), pool=pool, job=job, number=number, request=wanted)
    if is_new:
        return _("The next round of {pool} ends this lease.").format(pool=pool.name)
    return Unchanged(_("Already requested. Nothing was changed."))


ACTS: dict[str, Callable[[HttpRequest, Pool], str]] = {
    "accept_losses": _accept_losses,
    "end_lease": _end_lease,
}


def _show(
    request: HttpRequest, facts: PoolFacts, pool: Pool, errors: dict[str, str]
) -> HttpResponse:
    now = pool_now(facts).pool_at
    with site_scope():
        overdue = [overdue_row(row, now) for row in overdue_leases(pool, now, facts.clock.scale)]
        rounds = operate.last_rounds(facts.id)
        failure = next((row for row in operate.pool_failures() if row.pool_id == facts.id), None)
        stuck = operate.stuck_intents([facts], {facts.id: now})
        failing = operate.failing_executors()
        frozen = frozen_leases(facts.id)
        quarantined = operate.quarantined_jobs(facts.id)
        space = round_space(facts.id, facts.wall.date())
        tenants = pool_tenants(facts.id)
        verified = verifying_tenants(facts.id, tenants)
    down = next((row for row in failing if row.open_until and row.pool_id == facts.id), None)
    took = [(row.snapshot_us // MILLISECOND_US, row.decide_us // MILLISECOND_US) for row in rounds]
    times = clocks(facts, [(row.at, row.wall_at, row.scale) for row in rounds])
    line = line_of(facts)
    context = {
        "pool": facts,
        "line": line,
        "late": line.state == LATE,
        "paused": line.state == PAUSED,
        "failure": failure,
        "stuck": stuck,
        "stuck_label": orders_label(stuck[0].error if stuck else ""),
        "down": down,
        "down_label": executor_label(down.error if down else ""),
        "frozen": frozen,
        "losses": frozen.leases[:LOSSES] if frozen else (),
        "more": max(0, len(frozen.leases) - LOSSES) if frozen else 0,
        "times": times,
        "overdue": overdue,
        "ending": next((row for row in overdue if row.key == text(request.GET, "end")), None),
        "end_fields": _end_fields(request, errors),
        "trouble": " ".join(errors.values()),
        "reason": text(request.POST, "reason") if errors else "",
        "quarantined": quarantined,
        "rounds": [(row, times.instant(row.at), *ms) for row, ms in zip(rounds, took, strict=True)],
        "slowest": max(map(sum, took), default=0),
        "fallbacks": sum(bool(row.fallback) for row in rounds),
        "verify_title": verify_title(verified, len(tenants)),
        "verified": verify_rows(verified),
        "verify_command": verify_last_command(facts),
        "stats": _stats(facts, rounds, sorted(map(sum, took)), failure),
        "space": space,
        "space_stats": space_stats(space, settings.ROUNDS_KEEP_DAYS),
        "space_rows": space_rows(space),
        "keep_days": settings.ROUNDS_KEEP_DAYS,
        "live": True,
    }
    return page(request, "health.html", context, key="health", status=422 if errors else 200)


def _end_fields(request: HttpRequest, errors: dict[str, str]) -> list[Field]:
    typed = request.POST if errors else {}
    chosen = {"processes": tuple((value, _(said)) for value, said in PROCESSES)}
    return request_inputs(EndLeaseRequest, ("processes", "reason"), typed, errors, choices=chosen)


def _stats(
    facts: PoolFacts, rounds: list[Round], times: list[int], failure: RoundFailure | None
) -> list[Stat]:
    middle = times[len(times) // 2] if times else 0
    age_s = (facts.wall - facts.wall_at).total_seconds() if facts.wall_at else None
    fallbacks = [row for row in rounds if row.fallback]
    failures = failure.count if failure else 0
    return [
        Stat(
            _("Last round"),
            duration(age_s),
            _("ago"),
            (LineItem(_("interval"), duration(facts.round_s)),),
        ),
        Stat(
            _("Consecutive failures"),
            thousands(failures),
            ngettext("round", "rounds", failures),
            (LineItem(_("last at"), seconds_text(failure.at) if failure else _("never")),),
        ),
        Stat(
            _("Fell back"),
            thousands(len(fallbacks)),
            _("of {rounds}").format(rounds=plural(len(rounds), "round")),
            (
                LineItem(
                    pgettext("fell back", "to"),
                    fallbacks[0].fallback if fallbacks else pgettext("fell back", "nothing"),
                ),
            ),
        ),
        Stat(
            _("Median time"),
            thousands(middle),
            "ms",
            (LineItem(_("slowest"), f"{thousands(times[-1] if times else 0)} ms"),),
        ),
    ]
