"""Quota promises of a pool as pages show them: a label, and the parts behind it."""

from dataclasses import dataclass

from evenshare_core.policies.quota_promise import QuotaPromise, QuotaPromiseKind
from evenshare_core.units import SECOND_US
from portal.charts.figures import duration
from portal.charts.notes import LineItem, Note
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.sharing.quota_promises import pool_promise

LABELS = {
    QuotaPromiseKind.RESERVED: "reserved for its tenant",
    QuotaPromiseKind.LONG_TERM: "a long-term target",
    QuotaPromiseKind.WEIGHT: "a weight, not a guarantee",
    QuotaPromiseKind.NOT_GUARANTEED: "not guaranteed",
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
            text += f" It holds if all of these are true: {conditions}"
        return Note(f"A quota is {self.label}", self.parts, self.total, text)


def quota_promise_text(promise: QuotaPromise | None) -> QuotaPromiseText | None:
    if promise is None:
        return None
    parts = tuple(LineItem(part.text, _length(part.length_us)) for part in promise.parts)
    if promise.within_us is None:
        return QuotaPromiseText(LABELS[promise.kind], promise.text, parts, None, promise.conditions)
    within = _length(promise.within_us)
    total = LineItem("at most, in pool time", within)
    return QuotaPromiseText(
        f"guaranteed within {within}", promise.text, parts, total, promise.conditions
    )


def pool_promise_text(facts: PoolFacts) -> QuotaPromiseText | None:
    return quota_promise_text(pool_promise(facts))


def _length(length_us: int) -> str:
    return duration(-(-length_us // SECOND_US))
