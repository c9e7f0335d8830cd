"""Errors of the core in the language of the page; REST and the command get English."""

from django.utils.translation import gettext as _

from evenshare_core.domain.reason_texts import WITH_VALUES
from tenants.language import StoredTexts

_WITH_VALUES = StoredTexts(WITH_VALUES)


def core_error(text: str) -> str:
    """Return an error of the core in the language of the page, with or without values in it."""
    shown = _WITH_VALUES.shown(text)
    return _(text) if shown == text else shown
