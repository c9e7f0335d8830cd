"""Data of templates/rounds/_round_answers.html: a round's answers to deadlines."""

from typing import Any

from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from portal.charts.figures import duration, thousands
from portal.common.clocks import Clocks
from portal.common.standings import STANDING_BADGES
from portal.common.tenant_badges import badge_of
from scheduling.selectors.deadlines.answers import DeadlineStanding
from scheduling.selectors.deadlines.round_answers import AnswerKind, RoundAnswer, RoundAnswers
from scheduling.selectors.deadlines.texts import cause_text, limit_text


def kind_text(kind: AnswerKind) -> str:
    """Return how a deadline was answered, as a word."""
    return {
        AnswerKind.MISSED: pgettext("a deadline", "missed"),
        AnswerKind.REFUSED: pgettext("a deadline", "refused"),
        AnswerKind.MOVED: pgettext("a deadline", "moved"),
        AnswerKind.PLANNED: pgettext("a deadline", "planned"),
    }[kind]


def answers_title(answers: RoundAnswers) -> str:
    """Return how many deadlines were answered, and how."""
    if not answers.answered:
        return _("No new answers to deadlines")
    counts = ", ".join(
        f"{thousands(answers.counts[kind])} {kind_text(kind)}"
        for kind in AnswerKind
        if answers.counts[kind]
    )
    return ngettext(
        "{count} deadline was answered: {answers}",
        "{count} deadlines were answered: {answers}",
        answers.answered,
    ).format(count=thousands(answers.answered), answers=counts)


def answers_text(answers: RoundAnswers) -> str:
    """Return how many jobs have deadlines."""
    return ngettext(
        "Of {count} job with a deadline. Earlier answers of the other jobs remain valid.",
        "Of {count} jobs with deadlines. Earlier answers of the other jobs remain valid.",
        answers.dated,
    ).format(count=thousands(answers.dated))


def answer_row(row: RoundAnswer, times: Clocks) -> dict[str, Any]:
    """Return an answer, its plan and its deadline."""
    answer = row.answer
    kind = AnswerKind.PLANNED if row.kind is AnswerKind.MOVED else row.kind
    starts = answer.leases[0].starts_at if answer.leases else None
    return {
        "row": row,
        "badge": badge_of(row.tenant),
        "kind": STANDING_BADGES[DeadlineStanding(kind.value)],
        "said": capfirst(kind_text(row.kind)),
        "why": _why(row),
        "starts": times.instant(starts),
        "ends": times.instant(answer.ends),
        "by": times.instant(answer.by),
        "spare": _spare(row),
        "chance": None if answer.chance_milli is None else answer.chance_milli // 10,
        "earliest": times.instant(answer.earliest),
    }


def _why(row: RoundAnswer) -> str:
    if row.kind is AnswerKind.REFUSED:
        return limit_text(row.answer.limit)
    return cause_text(row.answer.cause)


def _spare(row: RoundAnswer) -> str:
    """Return how long before its deadline the plan ends."""
    by, ends = row.answer.by, row.answer.ends
    if by is None or ends is None:
        return ""
    return _("ends {time} before").format(time=duration((by - ends).total_seconds()))
