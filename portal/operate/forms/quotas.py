"""The quota grid: tenants by periods, the draft's cells as typed, sums and shortfalls."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.text import get_text_list
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from evenshare_core.domain.entitlements import Mode
from portal.charts.figures import plural, thousands
from portal.charts.tenants import TenantBadge
from portal.common.forms import day_text, instant, instant_text, text, whole
from scheduling.requests.nodes import NO_INSTANT
from tenants.input.errors import InvalidInputError
from tenants.periods import Key, Period, QuotaTerms, period_at
from tenants.services.quotas import QuotaEdit

NOW = "now"
MODES = (
    (Mode.LEND_AND_BORROW.value, gettext_noop("lend and borrow")),
    (Mode.LEND.value, gettext_noop("lend")),
    (Mode.RESERVE.value, gettext_noop("reserve")),
)
COLUMNS = 4
NAMES = ("gpus", "mode", "borrow", "lend", "until")
LABELS = {
    "gpus": gettext_noop("GPUs"),
    "mode": gettext_noop("Mode"),
    "borrow": gettext_noop("Borrowing limit"),
    "lend": gettext_noop("Lend limit"),
    "until": gettext_noop("End of the period"),
}
BLANKS = {
    "borrow": gettext_noop("no limit"),
    "lend": gettext_noop("all"),
    "until": gettext_noop("open"),
}
# The service's field names, each with the input's name if that differs.
INPUTS = {"borrow_limit": "borrow", "lend_limit": "lend"}
_EDIT = re.compile(r"quotas\[([0-9]+)\]\.(\w+)")


@dataclass(frozen=True, slots=True)
class Column:
    """A period of the pool, between two changes of quotas. `value` is its `since` in URLs."""

    at: datetime
    value: str
    text: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class QuotaInput:
    """A field of a draft's row: the typed text, the stored text, the error.

    `label` is for screen readers; `blank` is the text of an empty field.
    """

    name: str
    value: str
    was: str
    error: str = ""
    label: str = ""
    blank: str = ""
    numeric: bool = True

    @property
    def changed(self) -> bool:
        return self.value != self.was

    @property
    def was_text(self) -> str:
        """Return the stored text of a choice as the page names it."""
        return dict(mode_choices()).get(self.was, self.was)


@dataclass(frozen=True, slots=True)
class QuotaGridRow:
    """A tenant's row: GPUs by column (None if no quota), and the draft's fields."""

    key: Key
    badge: TenantBadge
    slug: str
    gpus: tuple[tuple[int | None, bool], ...]
    fields: Mapping[str, QuotaInput]

    @property
    def changed(self) -> bool:
        return any(field.changed for field in self.fields.values())

    @property
    def errors(self) -> tuple[QuotaInput, ...]:
        return tuple(field for field in self.fields.values() if field.error)


@dataclass(frozen=True, slots=True)
class ColumnSum:
    """A column's sum of quotas, and the capacity."""

    quota: int
    capacity: int
    drafted: bool = False

    @property
    def text(self) -> str:
        """Return the excess or the unallocated GPUs; empty if the sum equals the capacity."""
        left = self.capacity - self.quota
        if left < 0:
            return _("{count} too many: scaled down").format(count=thousands(-left))
        return _("{count} unallocated").format(count=thousands(left)) if left else ""


@dataclass(frozen=True, slots=True)
class TypeGrid:
    """A GPU type: its rows and the sum of every column."""

    id: int
    name: str
    capacity: int
    rows: tuple[QuotaGridRow, ...]
    sums: tuple[ColumnSum, ...]


@dataclass(frozen=True, slots=True)
class QuotaForm:
    """The data of the grid: `periods` by tenant and GPU type; `since` is the draft's column."""

    periods: Mapping[Key, Sequence[Period]]
    types: Mapping[int, tuple[str, int]]
    tenants: Mapping[int, tuple[str, TenantBadge]]
    now: datetime
    since: datetime

    @property
    def starts_now(self) -> bool:
        """Return whether the draft applies from now on."""
        return self.since <= self.now


def mode_choices() -> tuple[tuple[str, str], ...]:
    """Return the modes of quotas with their texts."""
    return tuple((mode, _(text)) for mode, text in MODES)


def input_id(key: Key, name: str) -> str:
    """Return the name of an input of the grid: `gpus-7-1` of tenant 7 and type 1."""
    return f"{name}-{key[0]}-{key[1]}"


def input_errors(error: InvalidInputError, edits: Sequence[QuotaEdit]) -> dict[str, str]:
    """Return the service's errors, which name places in `edits`, by input of the grid."""
    errors = {}
    for name, reason in error.by_field.items():
        match = _EDIT.fullmatch(name)
        if match:
            key = edits[int(match[1])].key
            errors[input_id(key, INPUTS.get(match[2], match[2]))] = reason
        else:
            errors[name] = reason
    return errors


def read_since(typed: str, now: datetime) -> datetime | None:
    """Return the instant from which a draft applies, or None if it is unreadable."""
    return now if typed in ("", NOW) else instant(typed)


def tomorrow(now: datetime) -> datetime:
    """Return the next midnight of pool time."""
    return now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


def columns(form: QuotaForm) -> list[Column]:
    """Return the present, the planned changes and the draft's instant; at most `COLUMNS`."""
    edges = {
        edge
        for periods in form.periods.values()
        for period in periods
        for edge in (period.since, period.until)
        if edge is not None and edge > form.now
    }
    later = sorted(edges)[: COLUMNS - 1]
    if not form.starts_now and form.since not in later:
        later = sorted([*later[: COLUMNS - 2], form.since])
    starts = [form.now, *later]
    return [
        Column(
            at=at,
            value=NOW if index == 0 else instant_text(at),
            text=_column_text(starts, index),
            chosen=at == form.since or (index == 0 and form.starts_now),
        )
        for index, at in enumerate(starts)
    ]


def _column_text(starts: Sequence[datetime], index: int) -> str:
    if index == 0:
        return _("now") if len(starts) > 1 else _("from now")
    return _("from {day}").format(day=day_text(starts[index]))


def grids(
    form: QuotaForm, posted: Mapping[str, str], errors: Mapping[str, str], added: Sequence[Key]
) -> list[TypeGrid]:
    """Return the grid of every GPU type, with the draft as typed."""
    heads = columns(form)
    keys = sorted(set(form.periods) | set(added), key=lambda key: (key[1], key[0]))
    drawn = []
    for type_id, (name, capacity) in form.types.items():
        rows = tuple(_row(form, key, heads, posted, errors) for key in keys if key[1] == type_id)
        sums = tuple(_sum(rows, index, head, capacity) for index, head in enumerate(heads))
        drawn.append(TypeGrid(type_id, name, capacity, rows, sums))
    return drawn


def _row(
    form: QuotaForm,
    key: Key,
    heads: Sequence[Column],
    posted: Mapping[str, str],
    errors: Mapping[str, str],
) -> QuotaGridRow:
    periods = form.periods.get(key, ())
    slug, badge = form.tenants[key[0]]
    gpus: list[tuple[int | None, bool]] = []
    for head in heads:
        period = period_at(periods, head.at)
        count = period.terms.gpus if period else None
        gpus.append((count, bool(gpus) and gpus[-1][0] == count))
    was = texts(period_at(periods, form.since))
    fields = {
        name: QuotaInput(
            input_id(key, name),
            text(posted, input_id(key, name)) if input_id(key, name) in posted else was[name],
            was[name],
            errors.get(input_id(key, name), ""),
            label=_("{label} of {tenant}").format(label=_(LABELS[name]), tenant=badge.name),
            blank=_(BLANKS[name]) if name in BLANKS else "",
            numeric=name != "until",
        )
        for name in NAMES
    }
    return QuotaGridRow(key, badge, slug, tuple(gpus), fields)


def texts(period: Period | None) -> dict[str, str]:
    """Return a period's fields; they are empty for a tenant without quota."""
    if period is None:
        return {"gpus": "", "mode": Mode.LEND_AND_BORROW.value, "borrow": "", "lend": "",
                "until": ""}  # fmt: skip # rows of what belongs together
    terms = period.terms
    return {
        "gpus": str(terms.gpus),
        "mode": terms.mode,
        "borrow": "" if terms.borrow_limit is None else str(terms.borrow_limit),
        "lend": "" if terms.lend_limit is None else str(terms.lend_limit),
        "until": instant_text(period.until),
    }


def _sum(rows: Sequence[QuotaGridRow], index: int, head: Column, capacity: int) -> ColumnSum:
    if not head.chosen:
        return ColumnSum(sum(row.gpus[index][0] or 0 for row in rows), capacity)
    typed = sum(whole(row.fields["gpus"].value) or 0 for row in rows)
    return ColumnSum(typed, capacity, any(row.changed for row in rows))


def read_edits(
    form: QuotaForm, posted: Mapping[str, str]
) -> tuple[list[QuotaEdit], dict[str, str]]:
    """Return the rows that a posted draft changes, and errors by field."""
    edits: list[QuotaEdit] = []
    errors: dict[str, str] = {}
    keys = [(tenant, type_id) for type_id in form.types for tenant in form.tenants]
    for key in keys:
        if input_id(key, "gpus") not in posted:
            continue
        period = period_at(form.periods.get(key, ()), form.since)
        was = texts(period)
        typed = {name: text(posted, input_id(key, name)) for name in NAMES}
        if typed == was or (period is None and not typed["gpus"]):
            continue
        edit, wrong = _edit(key, typed, period)
        errors |= {input_id(key, name): message for name, message in wrong.items()}
        if edit is not None and not wrong:
            edits.append(edit)
    return edits, errors


def _edit(
    key: Key, typed: Mapping[str, str], period: Period | None
) -> tuple[QuotaEdit | None, dict[str, str]]:
    errors = {}
    numbers: dict[str, int | None] = {}
    for name in ("gpus", "borrow", "lend"):
        numbers[name] = whole(typed[name])
        if typed[name] and numbers[name] is None:
            errors[name] = _("Enter a whole number.")
    until = instant(typed["until"])
    if typed["until"] and until is None:
        errors["until"] = _(NO_INSTANT)
    was_until = texts(period)["until"]
    if period is not None and typed["until"] == was_until:
        until = period.until  # the exact value, although the field may show fewer digits
    gpus = numbers["gpus"]
    terms = (
        None
        if gpus is None
        else QuotaTerms(gpus, typed["mode"], numbers["borrow"], numbers["lend"])
    )
    return QuotaEdit(*key, terms, until), errors


def headline(types: Sequence[TypeGrid]) -> str:
    """Return a sentence on the present excess of quotas over GPUs, or on the unallocated GPUs."""
    over = {grid.name: grid.sums[0].quota - grid.capacity for grid in types}
    over = {name: count for name, count in over.items() if count > 0}
    if over:
        excess = [
            f"{plural(count, 'GPU')} ({name})" if len(types) > 1 else plural(count, "GPU")
            for name, count in over.items()
        ]
        return _("Quotas exceed the pool by {excess}.").format(
            excess=get_text_list(excess, _("and"))
        )
    quota = sum(grid.sums[0].quota for grid in types)
    gpus = sum(grid.capacity for grid in types)
    if quota == gpus:
        return _("All {gpus} are allocated as quota.").format(gpus=plural(gpus, "GPU"))
    return _("{quota} of {gpus} are allocated as quota; {left} are unallocated.").format(
        quota=thousands(quota), gpus=plural(gpus, "GPU"), left=thousands(gpus - quota)
    )
