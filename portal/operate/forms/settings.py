"""The form of a pool's settings: lengths, visibility, and a policy's own options."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from evenshare_core.policies import registry
from evenshare_core.policies.options import Option, OptionError, describe_options
from portal.charts.figures import duration, thousands
from portal.common.forms import Field, text, whole
from scheduling.models import Pool
from scheduling.requests.pools import LENGTHS, PoolChangeRequest
from tenants.input.requests import request_fields

OPTION = "option-"
YES_NO = (gettext_noop("yes"), gettext_noop("no"))
# The groups of the form; the last group has the other settings.
GROUPS = {
    gettext_noop("Rounds and leases"): (
        *("round_s", "lease_s", "least_lease_s", "most_lease_s", "grace_s", "outage_grace_s"),
    ),
    gettext_noop("Idle GPUs"): ("idle_warn_s", "idle_return_s"),
}
REST = gettext_noop("Profiling and visibility")


@dataclass(frozen=True, slots=True)
class SettingField:
    """A field, and its texts by default and as stored."""

    field: Field
    default: str
    stored: str


@dataclass(frozen=True, slots=True)
class SettingGroup:
    """A group of fields that is folded unless one of them was changed or is invalid."""

    id: str
    title: str
    settings: Sequence[SettingField]

    @property
    def differing(self) -> list[Field]:
        """Return the fields whose stored value is not the default, with the texts of choices."""
        return [_with_text(one.field) for one in self.settings if one.stored != one.default]

    @property
    def is_open(self) -> bool:
        return any(one.field.error or one.field.value != one.stored for one in self.settings)


def _with_text(field: Field) -> Field:
    return replace(field, value=dict(field.choices).get(field.value, field.value))


def setting_groups(lengths: Sequence[SettingField]) -> list[SettingGroup]:
    """Return the fields of lengths and visibility by group."""
    grouped = {name for names in GROUPS.values() for name in names}
    rest = tuple(one.field.name for one in lengths if one.field.name not in grouped)
    return [
        SettingGroup(
            f"group-{number}", _(title), [one for one in lengths if one.field.name in names]
        )
        for number, (title, names) in enumerate({**GROUPS, REST: rest}.items(), start=1)
    ]


def setting_fields(
    pool: Pool, posted: Mapping[str, str], errors: Mapping[str, str]
) -> list[SettingField]:
    """Return the fields of lengths and visibility."""
    asked = {name: field.input for name, field in request_fields(PoolChangeRequest).items()}
    choices = tuple((choice.value, str(choice.label)) for choice in Pool.Visibility)
    fields = []
    for name in (*LENGTHS, "visibility"):
        stored, hint = str(getattr(pool, name)), _(asked[name].hint)
        if name in LENGTHS:
            least, most = map(thousands, LENGTHS[name])
            hint = _("{hint} {least} to {most}.").format(hint=hint, least=least, most=most)
        field = Field(
            name,
            _(asked[name].label),
            posted.get(name, stored),
            "number" if name in LENGTHS else "select",
            hint,
            _(asked[name].unit),
            errors.get(name, ""),
            () if name in LENGTHS else choices,
        )
        fields.append(SettingField(field, str(getattr(Pool(), name)), stored))
    return fields


def lengths_typed(posted: Mapping[str, str]) -> dict[str, int | None]:
    """Return the form's lengths; None if a length is unreadable."""
    return {name: whole(posted.get(name)) for name in LENGTHS}


def policy_choices(present: str) -> tuple[tuple[str, str], ...]:
    """Return every policy with its title, by name, and the present one even if not installed."""
    titles = {name: _(policy.title) for name, policy in registry.POLICIES.items()}
    titles.setdefault(present, _("not installed"))
    return tuple((name, f"{name}: {title}") for name, title in sorted(titles.items()))


def option_fields(
    policy: str, stored: Mapping[str, Any], posted: Mapping[str, str], errors: Mapping[str, str]
) -> list[SettingField]:
    """Return a field per option of a policy, with help, bounds and default.

    The result is empty if the policy is not installed.
    """
    if policy not in registry.POLICIES:
        return []
    kind = registry.policy(policy).options_type
    try:
        present = registry.options(policy, dict(stored))
    except OptionError:
        present = kind()
    return [
        _field(
            option, getattr(present, option.name), posted, errors.get(f"options.{option.name}", "")
        )
        for option in describe_options(kind)
    ]


def _field(option: Option, present: object, posted: Mapping[str, str], error: str) -> SettingField:
    key = OPTION + option.name
    shape, bounds, shown = "number", "", str(present)
    default = preset = str(option.default)
    choices: tuple[tuple[str, str], ...] = ()
    if option.kind == "switch":
        # Two choices rather than a box: an unchecked box is not sent.
        shape, shown = "select", _yes_no(present)
        preset = _yes_no(option.default)
        default = _(preset)
        choices = tuple((one, _(one)) for one in YES_NO)
    elif option.kind == "choice":
        shape, choices = "select", tuple((one, one) for one in option.choices)
    else:
        figure = f"{option.default:g}" if option.kind == "number" else thousands(option.default)
        default = figure + _length_text(option)
        if option.least is not None and option.most is not None:
            bounds = _("Range: {least} to {most}.").format(
                least=_bound(option, option.least), most=_bound(option, option.most)
            )
    default_text = _("Default: {default}.").format(default=default)
    field = Field(
        key,
        _(option.label),
        posted.get(key, shown),
        shape,
        " ".join(filter(None, (_(option.description), bounds, default_text))),
        _(option.unit),
        error=error,
        choices=choices,
    )
    return SettingField(field, preset, shown)


def _bound(option: Option, value: int | float) -> str:
    """Return a bound; decimals have a point in all languages, as in the field."""
    return f"{value:,}" if option.kind == "number" else thousands(value)


def _yes_no(value: object) -> str:
    return "yes" if value else "no"


def _length_text(option: Option) -> str:
    """Return a default in seconds as a duration in brackets; empty for other options."""
    if option.unit != "s" or not option.default:
        return ""
    return f" ({duration(option.default)})"


def options_typed(policy: str, posted: Mapping[str, str]) -> dict[str, Any]:
    """Return the form's options, each converted to its type.

    Input that cannot be converted stays text.

    Raises:
        UnknownPolicyError: the policy does not exist.
    """
    return {
        option.name: _typed(option, text(posted, OPTION + option.name))
        for option in describe_options(registry.policy(policy).options_type)
        if OPTION + option.name in posted
    }


def _typed(option: Option, value: str) -> object:
    match option.kind:
        case "switch":
            return {"yes": True, "no": False}.get(value, value)
        case "integer":
            number = whole(value)
            return value if number is None else number
        case "number":
            try:
                return float(value)
            except ValueError:
                return value
    return value
