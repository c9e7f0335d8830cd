"""Tags of a job: short words by which people find their jobs."""

import re
from collections.abc import Mapping, Sequence

from django.utils.translation import gettext as _

from tenants.input.errors import FieldErrors
from tenants.language import gettext_noop

TAGS_MAX, TAG_MAX = 10, 31
TAG_HINT = gettext_noop(
    "Lower-case letters, digits, hyphens and underscores, at most 31, such as ablation-3."
)
_TAG = re.compile(rf"[a-z0-9][-_a-z0-9]{{0,{TAG_MAX - 1}}}")


def read_tags_field(given: Mapping[str, object], errors: FieldErrors) -> tuple[str, ...]:
    """Read a job's tags, each once and sorted: a list, or a text with spaces or commas."""
    value = given.get("tags", ())
    if isinstance(value, str):
        value = split_tags(value)
    if not isinstance(value, list | tuple):
        errors.add("tags", _("must be a list of texts"), _('Use ["a", "b"].'))
        return ()
    return read_tags(value, errors)


def read_tags(value: Sequence[object], errors: FieldErrors, name: str = "tags") -> tuple[str, ...]:
    """Return tags, each once and sorted; add an error for each that is not a tag."""
    tags = set()
    for place, item in enumerate(value):
        # The form splits its text at spaces only.
        tag = item.strip(",") if isinstance(item, str) else item
        if isinstance(tag, str) and _TAG.fullmatch(tag):
            tags.add(tag)
        elif tag != "":
            errors.add(f"{name}[{place}]", _("is not a tag"), _(TAG_HINT), "bad_text")
    if len(tags) > TAGS_MAX:
        errors.add(name, _("has more than {most} tags").format(most=TAGS_MAX), code="too_long")
    return tuple(sorted(tags))


def split_tags(text: str) -> list[str]:
    """Return the words of a text, separated by spaces or commas."""
    return text.replace(",", " ").split()
