"""Data of templates/rounds/_round_answers.html: a round's answers to deadlines."""

from typing import Any

from portal.charts.figures import duration, plural
from portal.common.clocks import Clocks
from portal.common.standings import STANDING_BADGES
from portal.common.tenant_badges import badge_of
from scheduling.selectors.deadlines.answers import DeadlineStanding
from scheduling.selectors.deadlines.round_answers import AnswerKind, RoundAnswer, RoundAnswers
from scheduling.selectors.deadlines.texts import cause_text, limit_text


def answers_title(answers: RoundAnswers) -> str:
    """Return how many deadlines were answered, and how."""
    if not answers.answered:
        return "No new answers to deadlines"
    counts = ", ".join(
        f"{answers.counts[kind]} {kind}" for kind in AnswerKind if answers.counts[kind]
    )
    was = plural(answers.answered, "deadline was answered", "deadlines were answered")
    return f"{was}: {counts}"


def answers_text(answers: RoundAnswers) -> str:
    """Return how many jobs have deadlines."""
    of = plural(answers.dated, "job with a deadline", "jobs with deadlines")
    return f"Of {of}. Earlier answers of the other jobs remain valid."


def answer_row(row: RoundAnswer, times: Clocks) -> dict[str, Any]:
    """Return an answer, its plan and its deadline."""
    answer = row.answer
    kind = AnswerKind.PLANNED if row.kind is AnswerKind.MOVED else row.kind
    starts = answer.leases[0].starts_at if answer.leases else None
    return {
        "row": row,
        "badge": badge_of(row.tenant),
        "kind": STANDING_BADGES[DeadlineStanding(kind.value)],
        "said": row.kind.value.capitalize(),
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
    return f"{duration((by - ends).total_seconds())} before" if by and ends else ""
