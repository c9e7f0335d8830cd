"""Texts of the reasons for which jobs wait and leases end, for pages and REST."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from evenshare_core.domain.instants import from_us
from evenshare_core.domain.reason_texts import ENDINGS, RULES, WORDINGS, ReasonWording
from evenshare_core.money.fixed_point import to_text
from evenshare_core.units import CREDIT_MICRO, HOUR_US
from tenants.answers import formatted_as
from tenants.language import number, plural


@dataclass(frozen=True, slots=True)
class ReasonText:
    """The texts of a reason, with its numbers filled in."""

    code: str
    text: str
    sentence: str
    next_step: str


def ending_text(reason: str) -> str:
    """Return why a lease ended; for a reason that no longer exists, its code."""
    return _(ENDINGS[reason]) if reason in ENDINGS else reason.replace("_", " ")


def rule_text(rule: str) -> str:
    """Return the name of a rule; for a rule that no longer exists, its code."""
    return _(RULES[rule][0]) if rule in RULES else rule.replace("_", " ")


def preemption_text(rule: str, who: str) -> str:
    """Return why a lease ended before its expiry: "north was below its quota (guarantee)".

    `who` is the tenant that got its GPUs; empty if the viewer may not see that tenant.
    """
    sentence = _(RULES[rule][1]) if rule in RULES else _("for a job of {who}")
    return f"{sentence.format(who=who or pgettext('of', 'another tenant'))} ({rule_text(rule)})"


def given_up_text(losses: int) -> str:
    """Return the text for a job that failed because its process was lost too often."""
    text = _("It failed: its process was lost {losses} times in a row soon after its start.")
    return text.format(losses=losses)


class _ShownNumber(str):
    """A formatted number; "{free:was|were}" formats as the matching singular or plural."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        one, _, many = spec.partition("|")
        if many:
            return one if self == "1" else many
        return str(self)


def why(code: str, numbers: Mapping[str, Any] | None = None, *, now: bool = False) -> ReasonText:
    """Return a reason's text, with its numbers if known; an unknown code stays unchanged.

    `now`: the numbers are current, not those of a round.
    """
    wording = WORDINGS.get(code)
    if wording is None:
        return ReasonText(code, code.replace("_", " "), "", "")
    return written(code, wording, numbers, now=now)


def written(
    code: str, wording: ReasonWording, numbers: Mapping[str, Any] | None, *, now: bool = False
) -> ReasonText:
    """Return the text of the reason `code` in this wording, with its numbers if they are known."""
    sentences = (wording.now if now and wording.now else wording.sentence, *wording.others)
    name, next_step = _(wording.text), _(wording.next_step)
    text = _(wording.plain or wording.sentence)
    if not numbers:
        return ReasonText(code, name, text, next_step)
    known = {name: value for name, value in _read(numbers).items() if value is not None}
    shown = {name: _ShownNumber(_show(value)) for name, value in known.items()}
    if wording.early and numbers.get("preempted"):
        sentences = (wording.early,)
    for one in sentences:
        try:
            text = _(one).format_map(shown)
        except KeyError:
            continue
        break
    others = numbers.get("other_types")
    if others:
        text = _("On {gpu_type}: {reason} It could not start on {others} either.").format(
            gpu_type=numbers["gpu_type"], reason=text, others=any_of(others)
        )
    return ReasonText(code, name, text, next_step)


def any_of(names: Sequence[str]) -> str:
    """Join names as a choice: "k80, p100 or v100"."""
    *most, last = names
    return _("{names} or {last}").format(names=", ".join(most), last=last) if most else last


def wait_kind(code: str) -> str:
    """Return the style in which a timeline draws a wait for this reason."""
    return WORDINGS[code].kind if code in WORDINGS else "turn"


def _read(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Convert micro-credits to credits, GPU-time to GPU-hours and microseconds to instants.

    Names lose the suffix for the unit.
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
            read[name.removesuffix("_us")] = f"{from_us(value):%Y-%m-%d %H:%M:%S} UTC"
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
    """Return CPUs and memory as text, "8 CPUs and 65,536 MB of memory"; empty if both are 0."""
    cpu_text = plural(cpus, "CPU") if cpus else ""
    memory = _("{memory} MB of memory").format(memory=number(memory_mb)) if memory_mb else ""
    if not (cpu_text and memory):
        return cpu_text or memory
    return _("{cpus} and {memory}").format(cpus=cpu_text, memory=memory)


def _show(value: object) -> str:
    if isinstance(value, float):
        return number(value, 2)
    return number(value) if isinstance(value, int | Decimal) else str(value)
