"""Errors of the core in the language of the page; REST and the command get English."""

from evenshare_core.domain.reason_texts import WITH_VALUES
from tenants.language import StoredTexts

CORE_ERRORS = StoredTexts(WITH_VALUES)
