"""Quota promises of a pool as pages show them: a label, and the parts behind it."""

from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from evenshare_core.policies.quota_promise import QuotaPromise, QuotaPromiseKind
from evenshare_core.units import SECOND_US
from portal.charts.figures import duration
from portal.charts.notes import LineItem, Note
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.sharing.quota_promises import pool_promise

LABELS = {
    QuotaPromiseKind.RESERVED: gettext_noop("reserved for its tenant"),
    QuotaPromiseKind.LONG_TERM: gettext_noop("a long-term target"),
    QuotaPromiseKind.WEIGHT: gettext_noop("a weight, not a guarantee"),
    QuotaPromiseKind.NOT_GUARANTEED: gettext_noop("not guaranteed"),
}


@dataclass(frozen=True, slots=True)
class QuotaPromiseText:
    """A promise as text: "A quota here is `label`." `note` explains it."""

    label: str
    text: str
    parts: tuple[LineItem, ...]
    total: LineItem | None
    conditions: tuple[str, ...]

    @property
    def note(self) -> Note:
        text = self.text
        if self.conditions:
            numbered = enumerate(self.conditions, start=1)
            conditions = " ".join(f"({place}) {sentence}" for place, sentence in numbered)
            holds = _("It holds if all of these are true: {conditions}")
            text = " ".join((text, holds.format(conditions=conditions)))
        title = _("A quota is {promise}").format(promise=self.label)
        return Note(title, self.parts, self.total, text)


def quota_promise_text(promise: QuotaPromise | None) -> QuotaPromiseText | None:
    if promise is None:
        return None
    parts = tuple(LineItem(part.text, _length(part.length_us)) for part in promise.parts)
    if promise.within_us is None:
        label = _(LABELS[promise.kind])
        return QuotaPromiseText(label, promise.text, parts, None, promise.conditions)
    within = _length(promise.within_us)
    total = LineItem(_("at most, in pool time"), within)
    label = _("guaranteed within {time}").format(time=within)
    return QuotaPromiseText(label, promise.text, parts, total, promise.conditions)


def pool_promise_text(facts: PoolFacts) -> QuotaPromiseText | None:
    return quota_promise_text(pool_promise(facts))


def _length(length_us: int) -> str:
    return duration(-(-length_us // SECOND_US))
