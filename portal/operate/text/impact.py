"""The effect of draft quotas or settings on the next round, as a sentence and a table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from portal.charts.figures import plural, thousands
from portal.charts.tenants import TenantBadge
from portal.common.impact import ImpactLine
from scheduling.services.quota_impact import Impact
from scheduling.services.round_impact import ImpactRow, RoundImpact
from scheduling.services.settings_impact import SettingsImpact

_UNKNOWN = gettext_noop("The next round cannot be estimated.")
# The names of the fields of `RoundCounts`, in their order.
COUNTED = (
    gettext_noop("Leases granted"),
    gettext_noop("Leases renewed"),
    gettext_noop("Leases ended"),
    gettext_noop("Jobs queued after it"),
)
NAMED = 3
MOVED_RHO = 0.005
AnyImpact = TypeVar("AnyImpact", bound=RoundImpact)


@dataclass(frozen=True, slots=True)
class Preview(Generic[AnyImpact]):
    """The estimate of other quotas or settings as the page shows it.

    `digest` identifies a draft of quotas, which changes `cells` of them.
    """

    impact: AnyImpact
    sentence: str
    rows: tuple[ImpactLine, ...]
    unchanged: int
    digest: str = ""
    cells: int = 0

    @property
    def several(self) -> bool:
        """Return whether the round has rows of several GPU types."""
        return _several(self.impact.rows)

    @property
    def counts(self) -> Iterator[tuple[str, int, int]]:
        """Yield labels and numbers of the round, without and with the change."""
        return zip(map(_, COUNTED), self.impact.before, self.impact.after, strict=True)

    @property
    def unchanged_text(self) -> str:
        """Return how many rows the table omits; empty if none."""
        if not self.unchanged:
            return ""
        if self.several:
            text = ngettext(
                "{count} line of a tenant and GPU type is unchanged.",
                "{count} lines of tenants and GPU types are unchanged.",
                self.unchanged,
            )
        else:
            text = ngettext(
                "{count} other tenant is unchanged.",
                "{count} other tenants are unchanged.",
                self.unchanged,
            )
        return text.format(count=thousands(self.unchanged))


def settings_preview(
    impact: SettingsImpact, badges: Mapping[int, TenantBadge]
) -> Preview[SettingsImpact]:
    """Return the impact with the rows that differ, largest change first."""
    rows = [ImpactLine(badges[row.tenant], row, False) for row in impact.rows]
    shown = sorted(
        (row for row in rows if _matters(row.row)),
        key=lambda line: (-abs(line.moves), line.badge.name, line.row.gpu_type),
    )
    sentence = _settings_sentence(impact, shown)
    return Preview(impact, sentence, tuple(shown), len(rows) - len(shown))


def preview(
    impact: Impact, badges: Mapping[int, TenantBadge], types: Mapping[int, str], digest: str
) -> Preview[Impact]:
    """Return the impact with the rows that differ or were edited, largest change first."""
    edited = {(key[0], types[key[1]]) for key in impact.plan.keys}
    rows = [
        ImpactLine(badges[row.tenant], row, (row.tenant, row.gpu_type) in edited)
        for row in impact.rows
        if row.tenant in badges
    ]
    shown = [row for row in rows if row.edited or _matters(row.row)]
    shown.sort(key=lambda line: (-abs(line.moves), not line.edited, line.badge.name))
    unchanged, cells = len(rows) - len(shown), len(impact.plan.keys)
    return Preview(impact, _sentence(impact, shown), tuple(shown), unchanged, digest, cells)


def _matters(row: ImpactRow[int]) -> bool:
    """Return whether a row changes; differences of rho below its rounding are ignored."""
    before, after = row.before, row.after
    if (before.quota, before.deserved, before.got) != (after.quota, after.deserved, after.got):
        return True
    return abs((before.rho or 0) - (after.rho or 0)) >= MOVED_RHO


def _sentence(impact: Impact, rows: Sequence[ImpactLine]) -> str:
    if impact.error:
        return _(_UNKNOWN)
    if not impact.plan.after:
        return _("No changes yet.")
    moved = [row for row in rows if row.moves]
    if moved:
        return _joined(_moves(moved, several=_several(impact.rows)))
    deserving = [row for row in rows if row.row.before.deserved != row.row.after.deserved]
    if deserving:
        parts = [
            _("the fair share of {tenant} is {gpus} instead of {before}").format(
                tenant=row.badge.name,
                gpus=plural(row.row.after.deserved, "GPU"),
                before=thousands(row.row.before.deserved),
            )
            for row in deserving[:NAMED]
        ]
        others = len(deserving) - NAMED
        if others > 0:
            text = ngettext(
                "{count} other fair share changes", "{count} other fair shares change", others
            )
            parts.append(text.format(count=thousands(others)))
        return _joined([*parts, _("no GPU moves yet")])
    return _("No tenant gets more or fewer GPUs in the next round.")


def _several(rows: Sequence[ImpactRow[int]]) -> bool:
    return len({row.gpu_type for row in rows}) > 1


def _settings_sentence(impact: SettingsImpact, rows: Sequence[ImpactLine]) -> str:
    if impact.error:
        return _(_UNKNOWN)
    moved = [row for row in rows if row.moves]
    if moved:
        return _joined(_moves(moved, several=_several(impact.rows)))
    if impact.granted_only_after:
        return ngettext(
            "No tenant gains or loses GPUs, but {count} other job would start.",
            "No tenant gains or loses GPUs, but {count} other jobs would start.",
            impact.granted_only_after,
        ).format(count=thousands(impact.granted_only_after))
    if impact.same:
        return _("The next round would decide the same.")
    return _("No tenant holds more or fewer GPUs; only leases, lengths, nodes or prices differ.")


def _moves(moved: Sequence[ImpactLine], *, several: bool) -> list[str]:
    """Return the largest changes by name, and the number of the other changes.

    `several`: the round has several GPU types, so a tenant may gain and lose at once.
    """
    parts = [_moved(row, several=several) for row in moved[:NAMED]]
    others = len(moved) - NAMED
    if others > 0:
        if several:
            text = ngettext(
                "{count} other line moves as well", "{count} other lines move as well", others
            )
        else:
            text = ngettext(
                "{count} other tenant moves as well", "{count} other tenants move as well", others
            )
        parts.append(text.format(count=thousands(others)))
    return parts


def _moved(row: ImpactLine, *, several: bool) -> str:
    if several:
        gains = _("{tenant} gets {gpus} of {gpu_type} more")
        loses = _("{tenant} gets {gpus} of {gpu_type} fewer")
    else:
        gains, loses = _("{tenant} gets {gpus} more"), _("{tenant} gets {gpus} fewer")
    return (gains if row.moves > 0 else loses).format(
        tenant=row.badge.name, gpus=plural(abs(row.moves), "GPU"), gpu_type=row.row.gpu_type
    )


def _joined(parts: Sequence[str]) -> str:
    return "; ".join(parts) + "."
