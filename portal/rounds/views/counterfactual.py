"""The counterfactual of a stored round: its result if other speeds had been reported."""

from decimal import Decimal, InvalidOperation
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from evenshare_core.units import ONE_MILLI
from portal.common.access import access, pool_or_404, signed_in
from portal.rounds.text.counterfactual import counterfactual_body
from scheduling.selectors.rounds.counterfactual import TooLargeError, read_counterfactual
from scheduling.selectors.rounds.lists import find_round
from scheduling.selectors.rounds.stored import ReplayError
from scheduling.selectors.stored_texts import STORED
from scheduling.selectors.visibility import read_visibility
from tenants.rate import Rate, RateError, take
from tenants.scopes import site_scope

# A page decides a round several times. Per person: five pages at once, then one every 2 s.
PAGES = Rate(per_s=0.5, full=5)
MOST_MILLI = 1000 * ONE_MILLI
FIELD = "speed-"


@signed_in
@require_safe
def counterfactual_page(request: HttpRequest, name: str, number: int) -> HttpResponseBase:
    """Try other reports of a job type of the viewer on a round."""
    facts = pool_or_404(request, name)
    viewer = access(request)
    with site_scope():
        round_ = find_round(facts.id, number)
        visibility = read_visibility(facts.id, viewer)
    if round_ is None:
        raise Http404
    context: dict[str, Any] = {"pool": facts, "round": round_, "nav_key": "rounds"}
    try:
        take(f"counterfactual:{viewer.user_id}", PAGES)
    except RateError as error:
        text = _("Too many requests; try again in {seconds} s.")
        context |= {"why_not": text.format(seconds=error.retry_after_s)}
        answer = render(request, "rounds/counterfactual.html", context, status=429)
        answer["Retry-After"] = str(error.retry_after_s)
        return answer
    speeds, wrong = _speeds(request)
    try:
        with site_scope():
            result = read_counterfactual(
                round_, visibility, profile=_profile(request), speeds=speeds
            )
    except ReplayError as error:
        text = _("{reason}, so nothing can be tried.")
        context |= {"why_not": text.format(reason=capfirst(STORED.shown(str(error))))}
    except TooLargeError as error:
        text = _("This round is too large to be recomputed here: {reason}.")
        context |= {"why_not": text.format(reason=STORED.shown(str(error)))}
    else:
        context |= {"result": result, **counterfactual_body(result, round_, speeds, wrong)}
    return render(request, "rounds/counterfactual.html", context)


def _profile(request: HttpRequest) -> int | None:
    raw = request.GET.get("profile", "")
    return int(raw) if raw.isdecimal() and len(raw) < 18 else None


def _speeds(request: HttpRequest) -> tuple[dict[str, int], list[str]]:
    """Return the form's speeds in thousandths, and the types with invalid input."""
    speeds, wrong = {}, []
    for field in request.GET:
        raw = request.GET.get(field, "").strip()
        if not field.startswith(FIELD) or not raw:
            continue
        name = field.removeprefix(FIELD)
        try:
            milli = int(Decimal(raw.replace(",", ".")) * ONE_MILLI)
        except (InvalidOperation, ValueError, OverflowError):
            milli = 0
        if 1 <= milli <= MOST_MILLI:
            speeds[name] = milli
        else:
            wrong.append(name)
    return speeds, wrong[:5]
