"""Texts about a round's result for other reports of speeds."""

from typing import Any

from evenshare_core.units import ONE_MILLI
from portal.charts.figures import percent, plural, thousands
from portal.charts.glyphs import StateBadge
from portal.rounds.text.fairness_lines import scaling_text
from scheduling.models import Round
from scheduling.selectors.rounds.counterfactual import Counterfactual, ReportTrial

SOURCES = {
    "measured": "measured by the portal, so a report would not have counted",
    "declared": "declared by its tenant and not measured yet",
    "published": "from a published measurement",
}


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
        "tried": plural(len(result.tried), "report"),
        "source": SOURCES.get(result.chosen.source, "no longer kept"),
    }


def _headline(result: Counterfactual, round_: Round) -> str:
    if not result.looks_at_speeds:
        return "No report of speeds would have changed this round."
    if result.chosen is None:
        return f"You had no job type with speeds in round {thousands(round_.number)}."
    if result.best is None or result.truth is None:
        return f"None of {plural(len(result.tried), 'other report')} would have gained."
    whole = result.truth.outcome.throughput
    gain = percent(result.best.gain / whole, 1) if whole > 0 else "something"
    return f"Another report would have gained {gain} in this round (best found)."


def _deck(result: Counterfactual, round_: Round) -> str:
    """Return the policy's promise; a policy that is not truthful is named."""
    policy = f"Policy {round_.policy}"
    if not result.looks_at_speeds:
        return f"{policy} does not use speeds."
    if result.chosen is None:
        return "This page needs a job in the round whose job type has speeds."
    if result.best is not None:
        rest = "it promises no gain from overstating one job type, but understating gained"
        if not result.promised:
            rest = "it does not promise that a false report never gains"
        return f"{policy} is not truthful here: {rest}."
    if result.promised:
        known = f": exact, by {result.bound}" if result.bound else ""
        return f"{policy} promises here: no gain from overstating one job type{known}."
    return f"{policy} does not promise this; it holds for the reports that were tried."


def _speed(milli: int) -> str:
    return f"{milli / ONE_MILLI:.3f}".rstrip("0").rstrip(".")


def _row(one: ReportTrial, result: Counterfactual) -> dict[str, Any]:
    truth = result.truth
    return {
        "text": "The truth" if one is truth else _report_text(one),
        "truth": one is truth,
        "says": ", ".join(_speed(one.speeds.get(name, 0)) for name in result.gpu_types),
        "shares": [(name, one.outcome.shares.get(name, 0.0)) for name in result.gpu_types],
        "throughput": one.outcome.throughput,
        "gain": one.gain,
        "state": _state(one, result),
    }


def _report_text(one: ReportTrial) -> str:
    if one.factor is None:
        return "Your own report"
    kind = "Overstated" if one.factor > 1 else "Understated"
    return f"{kind}, {scaling_text(one.factor, one.gpu_type)}"


def _state(one: ReportTrial, result: Counterfactual) -> StateBadge:
    """Return the mark of a trial: a gain is a warning."""
    if one is result.truth:
        return StateBadge("", "")
    if one.gain > result.noise:
        return StateBadge("note", "gains")
    return StateBadge("ok", "loses" if one.gain < -result.noise else "the same")
