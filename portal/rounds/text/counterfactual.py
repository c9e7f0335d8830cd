"""Texts about a round's result for other reports of speeds."""

from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext, pgettext

from evenshare_core.units import ONE_MILLI
from portal.charts.figures import percent, thousands
from portal.charts.glyphs import StateBadge
from portal.rounds.text.fairness_lines import scaling_text
from scheduling.models import Round
from scheduling.selectors.rounds.counterfactual import Counterfactual, ReportTrial

SOURCES = {
    "measured": gettext_noop(
        "The speeds of {job_type} are measured by the portal, so a report would not have counted."
    ),
    "declared": gettext_noop(
        "The speeds of {job_type} are declared by its tenant and not measured yet."
    ),
    "published": gettext_noop("The speeds of {job_type} are from a published measurement."),
}
NO_SOURCE = gettext_noop("The speeds of {job_type} are no longer kept.")


def counterfactual_body(
    result: Counterfactual, round_: Round, speeds: dict[str, int], wrong: list[str]
) -> dict[str, Any]:
    """Return the page's texts and tables of the reports that were tried."""
    body: dict[str, Any] = {"headline": _headline(result, round_), "deck": _deck(result, round_)}
    if result.truth is None or result.chosen is None:
        return body
    return body | {
        "fields": [
            (name, _speed(speeds.get(name, milli)), _speed(milli), name in wrong)
            for name, milli in ((one, result.truth.speeds[one]) for one in result.gpu_types)
        ],
        "rows": [_row(result.truth, result), *(_row(one, result) for one in result.shown)],
        "tried": len(result.tried),
        "source": _(SOURCES.get(result.chosen.source, NO_SOURCE)).format(
            job_type=result.chosen.name
        ),
    }


def _headline(result: Counterfactual, round_: Round) -> str:
    if not result.looks_at_speeds:
        return _("No report of speeds would have changed this round.")
    if result.chosen is None:
        text = _("You had no job type with speeds in round {number}.")
        return text.format(number=thousands(round_.number))
    if result.best is None or result.truth is None:
        tried = len(result.tried)
        return ngettext(
            "None of {count} other report would have gained.",
            "None of {count} other reports would have gained.",
            tried,
        ).format(count=thousands(tried))
    whole = result.truth.outcome.throughput
    if whole <= 0:
        return _("Another report would have gained something in this round (best found).")
    text = _("Another report would have gained {gain} in this round (best found).")
    return text.format(gain=percent(result.best.gain / whole, 1))


def _deck(result: Counterfactual, round_: Round) -> str:
    """Return the policy's promise; a policy that is not truthful is named."""
    if result.looks_at_speeds and result.chosen is None:
        return _(
            "You can try reports for a round in which one of your jobs has a job type with speeds."
        )
    return _promise_text(result).format(policy=round_.policy, theorem=result.bound)


def _promise_text(result: Counterfactual) -> str:
    if not result.looks_at_speeds:
        return _("Policy {policy} does not use speeds.")
    if result.best is not None and result.promised:
        return _(
            "Policy {policy} is not truthful here: it promises no gain from overstating one job"
            " type, but understating gained."
        )
    if result.best is not None:
        return _(
            "Policy {policy} is not truthful here: it does not promise that a false report never"
            " gains."
        )
    if result.promised and result.bound:
        return _(
            "Policy {policy} promises here: no gain from overstating one job type: exact, by"
            " {theorem}."
        )
    if result.promised:
        return _("Policy {policy} promises here: no gain from overstating one job type.")
    return _("Policy {policy} does not promise this; it holds for the reports that were tried.")


def _speed(milli: int) -> str:
    return f"{milli / ONE_MILLI:.3f}".rstrip("0").rstrip(".")


def _row(one: ReportTrial, result: Counterfactual) -> dict[str, Any]:
    truth = result.truth
    return {
        "text": _("The truth") if one is truth else _report_text(one),
        "truth": one is truth,
        "says": ", ".join(_speed(one.speeds.get(name, 0)) for name in result.gpu_types),
        "shares": [(name, one.outcome.shares.get(name, 0.0)) for name in result.gpu_types],
        "throughput": one.outcome.throughput,
        "gain": one.gain,
        "state": _state(one, result),
    }


def _report_text(one: ReportTrial) -> str:
    if one.factor is None:
        return _("Your own report")
    text = _("Overstated, {scaling}") if one.factor > 1 else _("Understated, {scaling}")
    return text.format(scaling=scaling_text(one.factor, one.gpu_type))


def _state(one: ReportTrial, result: Counterfactual) -> StateBadge:
    """Return the mark of a trial: a gain is a warning."""
    if one is result.truth:
        return StateBadge("", "")
    if one.gain > result.noise:
        return StateBadge("note", pgettext("a false report", "gains"))
    if one.gain < -result.noise:
        return StateBadge("ok", pgettext("a false report", "loses"))
    return StateBadge("ok", pgettext("a false report", "the same"))
