"""Texts of answers to deadlines, for pages and the dry run."""

from django.utils.translation import gettext as _

from evenshare_core.domain.reason_texts import CAUSES, LIMITS, NONE_WOULD_DO


def limit_text(limit: str) -> str:
    """Return the obstacle to a deadline, as part of a sentence."""
    return _(LIMITS[limit]) if limit else _("no plan meets it")


def none_text(limit: str) -> str:
    """Return, as a sentence, why no earliest possible deadline is known for a refused job."""
    return (
        _(NONE_WOULD_DO[limit]) if limit in NONE_WOULD_DO else _("No feasible deadline is known.")
    )


def cause_text(cause: str) -> str:
    """Return why a plan moved; a policy's own text is returned unchanged."""
    return _(CAUSES[cause]) if cause in CAUSES else cause


def unanswered_text(policy: str) -> str:
    """Return the text for jobs with deadlines under a policy that does not answer deadlines."""
    text = _("Policy {policy} does not plan for deadlines; the deadline is only recorded.")
    return text.format(policy=policy)


def chance_text(chance_milli: int | None) -> str:
    """Return the probability of an end in time, rounded down: 100 % only if it is certain."""
    if chance_milli is None:
        return _("confidence unknown")
    text = _("{percent} % likely, by the error of its estimate")
    return text.format(percent=chance_milli // 10)
