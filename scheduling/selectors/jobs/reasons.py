"""Why jobs wait and why leases end, in words, for pages and REST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from evenshare_core.domain.instants import from_us
from evenshare_core.domain.plurals import plural
from evenshare_core.domain.reason_texts import ENDINGS, RULES, WORDINGS, ReasonWording
from evenshare_core.money.fixed_point import to_text
from evenshare_core.units import CREDIT_MICRO, HOUR_US
from tenants.answers import formatted_as


@dataclass(frozen=True, slots=True)
class ReasonText:
    """A reason with its numbers, ready to read."""

    code: str
    text: str
    sentence: str
    next_step: str


def ending_text(reason: str) -> str:
    """Why a lease ended; of a reason that is gone, its code."""
    return ENDINGS.get(reason, reason.replace("_", " "))


def rule_text(rule: str) -> str:
    """The name of a rule; of one that is gone, its code."""
    return RULES[rule][0] if rule in RULES else rule.replace("_", " ")


def preemption_text(rule: str, who: str) -> str:
    """Why a lease ended before its expiry: "north was below its quota (guarantee)".

    `who` got its GPUs; empty: a tenant that is out of the viewer's sight.
    """
    sentence = RULES[rule][1] if rule in RULES else "for a job of {who}"
    return f"{sentence.format(who=who or 'another tenant')} ({rule_text(rule)})"


def given_up_text(losses: int) -> str:
    """Why a job failed whose process was lost again and again."""
    return f"It failed: its process was lost {losses} times in a row soon after its start."


class _ShownNumber(str):
    """A number as it is shown; "{free:was|were}" is the word that goes with it."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        one, _, many = spec.partition("|")
        if many:
            return one if self == "1" else many
        return str(self)


def why(code: str, numbers: Mapping[str, Any] | None = None, *, now: bool = False) -> ReasonText:
    """Return a reason in words; with its numbers if they are known, an unknown code as it is.

    `now`: the numbers are of this moment, not of a round.
    """
    wording = WORDINGS.get(code)
    if wording is None:
        return ReasonText(code, code.replace("_", " "), "", "")
    return written(code, wording, numbers, now=now)


def written(
    code: str, wording: ReasonWording, numbers: Mapping[str, Any] | None, *, now: bool = False
) -> ReasonText:
    """Return a wording of a reason with its numbers, as `why`."""
    sentences = (wording.now if now and wording.now else wording.sentence, *wording.others)
    text = wording.plain or wording.sentence
    if not numbers:
        return ReasonText(code, wording.text, text, wording.next_step)
    known = {name: value for name, value in _read(numbers).items() if value is not None}
    shown = {name: _ShownNumber(_show(value)) for name, value in known.items()}
    if wording.early and numbers.get("preempted"):
        sentences = (wording.early,)
    for one in sentences:
        try:
            text = one.format_map(shown)
        except KeyError:
            continue
        break
    others = numbers.get("other_types")
    if others:
        text = f"On {numbers['gpu_type']}: {text} It could not start on {any_of(others)} either."
    return ReasonText(code, wording.text, text, wording.next_step)


def any_of(names: Sequence[str]) -> str:
    """Return names as a choice: "k80, p100 or v100"."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def wait_kind(code: str) -> str:
    """Return how a timeline draws a wait for this reason."""
    return WORDINGS[code].kind if code in WORDINGS else "turn"


def _read(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Micro-credits as credits, GPU-time as GPU-hours and microseconds as instants.

    Their names have no unit then.
    """
    read: dict[str, Any] = {}
    for name, value in numbers.items():
        if value is None:
            continue
        if name.endswith("_gpu_us"):
            read[name.removesuffix("_us")] = value / HOUR_US
        elif name.endswith("_micro"):
            read[name.removesuffix("_micro")] = value / CREDIT_MICRO
        elif name.endswith("_us"):
            read[name.removesuffix("_us")] = f"{from_us(value):%Y-%m-%d %H:%M:%S}"
        else:
            read[name] = value
    if "cpus" in read or "memory_mb" in read:
        read["resources"] = resources_text(read.get("cpus", 0), read.get("memory_mb", 0))
    return read


def visible_numbers(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reason's numbers as the API writes them: micro-credits as decimal strings."""
    return {
        name.removesuffix("_micro"): (
            to_text(value) if name.endswith("_micro") and value is not None else value
        )
        for name, value in numbers.items()
    }


Numbers = Annotated[Mapping[str, Any], formatted_as(visible_numbers)]


def resources_text(cpus: int, memory_mb: int) -> str:
    """Return CPUs and memory in words, "8 CPUs and 65,536 MB of memory"; empty without either."""
    parts = [plural(cpus, "CPU")] if cpus else []
    if memory_mb:
        parts.append(f"{memory_mb:,} MB of memory")
    return " and ".join(parts)


def _show(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int | Decimal) else str(value)
