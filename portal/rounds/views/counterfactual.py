""" "Had I reported otherwise": what a stored round would have given for other speeds."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from evenshare_core.domain.profiles import PLAIN_MILLI
from portal.charts.figures import percent, thousands
from portal.site.access import access, pool_or_404, signed_in
from scheduling.api.rate import Buckets
from scheduling.models import Round
from scheduling.selectors.counterfactual import Otherwise, TooLargeError, Tried, otherwise
from scheduling.selectors.replay import ReplayError
from scheduling.selectors.visibility import read_visibility
from tenants.api.problems import Problem
from tenants.scopes import site_scope

# A page decides a round several times: five at once, then one every two seconds, by person.
ASKED = Buckets()
PAGES_AT_ONCE = 5
MOST_MILLI = 1000 * PLAIN_MILLI
SOURCES = {
    "measured": "measured by the portal on a run of it, so that a report would not have counted",
    "declared": "declared by its tenant, and not measured yet",
    "published": "from a published measurement",
}
FIELD = "speed-"


@signed_in
@require_safe
def otherwise_page(request: HttpRequest, name: str, number: int) -> HttpResponseBase:
    """Other reports of one own job type, tried on one round."""
    facts = pool_or_404(request, name)
    viewer = access(request)
    with site_scope():
        round_ = Round.objects.filter(pool_id=facts.id, number=number).first()
        visibility = read_visibility(facts.id, viewer)
    if round_ is None:
        raise Http404
    context: dict[str, Any] = {"pool": facts, "round": round_, "nav_key": "rounds"}
    try:
        ASKED.take(viewer.user_id or 0, ASKED.full / PAGES_AT_ONCE)
    except Problem as problem:
        context |= {"why_not": f"Too many were asked for; ask again in {problem.retry_after_s} s."}
        answer = render(request, "rounds/otherwise.html", context, status=429)
        answer["Retry-After"] = str(problem.retry_after_s)
        return answer
    speeds, wrong = _speeds(request)
    try:
        with site_scope():
            found = otherwise(round_, visibility, profile=_profile(request), speeds=speeds)
    except ReplayError as error:
        context |= {"why_not": f"{str(error)[0].upper()}{str(error)[1:]}, so nothing can be tried."}
    except TooLargeError as error:
        context |= {"why_not": f"This round is too large to be decided again here: {error}."}
    else:
        context |= {"found": found, **_body(found, round_, speeds, wrong)}
    return render(request, "rounds/otherwise.html", context)


def _profile(request: HttpRequest) -> int | None:
    raw = request.GET.get("profile", "")
    return int(raw) if raw.isdecimal() and len(raw) < 18 else None


def _speeds(request: HttpRequest) -> tuple[dict[str, int], list[str]]:
    """Speeds of the form in thousandths, and the types where something else was written."""
    speeds, wrong = {}, []
    for field in request.GET:
        raw = request.GET.get(field, "").strip()
        if not field.startswith(FIELD) or not raw:
            continue
        name = field.removeprefix(FIELD)
        try:
            milli = int(Decimal(raw.replace(",", ".")) * PLAIN_MILLI)
        except (InvalidOperation, ValueError, OverflowError):
            milli = 0
        if 1 <= milli <= MOST_MILLI:
            speeds[name] = milli
        else:
            wrong.append(name)
    return speeds, wrong[:5]


def _body(
    found: Otherwise, round_: Round, speeds: dict[str, int], wrong: list[str]
) -> dict[str, Any]:
    body: dict[str, Any] = {"headline": _headline(found, round_), "deck": _deck(found, round_)}
    if found.truth is None or found.chosen is None:
        return body
    return body | {
        "fields": [
            (name, _speed(speeds.get(name, milli)), _speed(milli), name in wrong)
            for name, milli in ((one, found.truth.speeds[one]) for one in found.gpu_types)
        ],
        "rows": [_row(found.truth, found), *(_row(one, found) for one in found.tried)],
        "source": SOURCES.get(found.chosen.source, "no longer kept"),
    }


def _headline(found: Otherwise, round_: Round) -> str:
    if not found.looks_at_speeds:
        return "No report of speeds would have changed this round."
    if found.chosen is None:
        return f"You had no job type with speeds in round {thousands(round_.number)}."
    if found.best is None or found.truth is None:
        return "The truth was your best report."
    whole = found.truth.outcome.throughput
    gain = percent(found.best.gain / whole, 1) if whole > 0 else "something"
    return f"Another report would have gained {gain} in this round."


def _deck(found: Otherwise, round_: Round) -> str:
    """What the policy promises, and names it where it is not truthful."""
    policy = f"Policy {round_.policy}"
    if not found.looks_at_speeds:
        return f"{policy} gives GPUs by other rules, and does not look at speeds."
    if found.chosen is None:
        return "It takes a job with a job type, and speeds of it, that was there in the round."
    if found.best is not None:
        rest = "it promises no gain from overstating, one job type, and understating gained"
        if not found.promised:
            rest = "it does not promise that a false report never gains"
        return f"{policy} is not truthful here: {rest}."
    if found.promised:
        return f"{policy} promises here: no gain from overstating, one job type."
    return f"{policy} does not promise that; it is so for the reports that were tried."


def _speed(milli: int) -> str:
    """1000 -> "1", 2125 -> "2.125": as a person writes it."""
    return f"{milli / PLAIN_MILLI:.3f}".rstrip("0").rstrip(".")


def _row(one: Tried, found: Otherwise) -> dict[str, Any]:
    truth = found.truth
    return {
        "words": "The truth" if one is truth else _words(one.factor),
        "truth": one is truth,
        "says": ", ".join(_speed(one.speeds.get(name, 0)) for name in found.gpu_types),
        "shares": [(name, one.outcome.shares.get(name, 0.0)) for name in found.gpu_types],
        "throughput": one.outcome.throughput,
        "gain": one.gain,
        "state": _state(one, found),
    }


def _words(factor: float | None) -> str:
    if factor is None:
        return "Your own report"
    kind = "Overstated" if factor > 1 else "Understated"
    return f"{kind}, \N{MULTIPLICATION SIGN}{factor:g}"


def _state(one: Tried, found: Otherwise) -> tuple[str, str]:
    """(mark, word): a gain is what the page warns of, so it has the sign of a warning."""
    if one is found.truth:
        return ("", "")
    if one.gain > found.noise:
        return ("note", "gains")
    return ("ok", "loses") if one.gain < -found.noise else ("ok", "the same")
