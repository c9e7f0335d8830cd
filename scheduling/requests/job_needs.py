"""Reads the ids of the jobs and sweeps that a job waits for."""

from collections.abc import Callable, Mapping
from uuid import UUID

from django.utils.translation import gettext as _

from tenants.input.errors import FieldErrors
from tenants.language import gettext_noop

NEEDS_MAX = 20
NEEDS_HINT = gettext_noop("Enter ids of jobs or sweeps of your tenant.")


def read_needs(name: str) -> Callable[[Mapping[str, object], FieldErrors], tuple[str, ...]]:
    """Return the reader of a field of ids: a list, or a text with commas or spaces between them."""

    def read(given: Mapping[str, object], errors: FieldErrors) -> tuple[str, ...]:
        value = given.get(name, ())
        if isinstance(value, str):
            value = value.replace(",", " ").split()
        if not isinstance(value, list | tuple):
            errors.add(name, _("must be a list of ids"), _(NEEDS_HINT))
            return ()
        if len(value) > NEEDS_MAX:
            errors.add(
                name,
                _("has more than {most} ids").format(most=NEEDS_MAX),
                _("Wait for a sweep."),
                "too_long",
            )
            return ()
        ids = [_id(item) for item in value]
        for index, one in enumerate(ids):
            if not one:
                errors.add(f"{name}[{index}]", _("is not an id"), _(NEEDS_HINT))
        return tuple(dict.fromkeys(filter(None, ids)))

    return read


def _id(item: object) -> str:
    try:
        return str(UUID(item)) if isinstance(item, str) else ""
    except ValueError:
        return ""
