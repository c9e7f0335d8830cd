"""`{% load sentences %}`: sentences of the apps below the portal, for the viewer of a page."""

from collections.abc import Callable
from datetime import datetime

from django import template
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from portal.charts.notes import PoolClocks
from portal.charts.sentences import sentence_parts
from portal.templatetags.evenshare import wall, when
from scheduling.selectors.stored_texts import STORED

register = template.Library()


@register.filter
def stored(text: str) -> str:
    """`{{ simulation.error|stored }}`: a text that was stored in English, in the page's language.

    A text of no known template, such as an engine's own message, is unchanged.
    """
    return STORED.shown(text)


@register.filter
def timed(text: str, clocks: PoolClocks | None) -> str:
    """`{{ offer.text|timed:times }}`: a sentence with its instants of pool time as `{% when %}`.

    Without clocks, the sentence is unchanged.
    """
    return text if clocks is None else _shown(text, lambda at: when(clocks.instant(at), "full"))


@register.filter
def wall_timed(text: str) -> str:
    """`{{ line.text|wall_timed }}`: the same with instants of the wall clock, as `{% wall %}`."""
    return _shown(text, wall)


def _shown(text: str, tag: Callable[[datetime], SafeString]) -> str:
    parts = [*sentence_parts(text)]
    if len(parts) == 1:
        return text
    shown = ((tag(part) if isinstance(part, datetime) else part,) for part in parts)
    return format_html_join("", "{}", shown)
