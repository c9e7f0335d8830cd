"""Input errors: one type for pages, REST, files and commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from django.utils.translation import gettext as _

# An error caused by the present state, not by the sent value (409 over REST).
CONFLICT = "conflict"
ERRORS_MAX = 100


@dataclass(frozen=True, slots=True)
class FieldError:
    """An error in one field of a resource, and the remedy.

    `field` is the resource's own name for it, such as `command[0]` or `quotas[2].until`; empty for
    the whole resource. `reason` continues after the field's name ("is required"), or is a
    sentence that starts with a capital letter. `code` names the type for programs. `line` counts
    from 1 in a text (0: the whole text; without a text it is None).
    """

    field: str
    reason: str
    hint: str = ""
    code: str = "invalid"
    line: int | None = None

    def __str__(self) -> str:
        if self.line is not None:
            where = _("line {line}").format(line=self.line) if self.line else _("the file")
            return f"{where}{', ' + self.field if self.field else ''}: {self.reason}"
        if not self.field:
            return self.reason
        return f"{self.field}{':' if self.reason[:1].isupper() else ''} {self.reason}"

    @property
    def top_field(self) -> str:
        """Return the field of the request that contains the error: `command` of `command[0]`."""
        return re.split(r"[.\[]", self.field, maxsplit=1)[0]

    def inside(self, place: str) -> FieldError:
        """Return the error as one of a field of `place`: `gpus` becomes `jobs[3].gpus`."""
        if not place:
            return self
        return replace(self, field=f"{place}.{self.field}" if self.field else place)


class InvalidInputError(Exception):
    """The request is invalid and changed nothing. `errors` is never empty."""

    def __init__(self, errors: Iterable[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(map(str, self.errors)))

    @property
    def by_field(self) -> dict[str, str]:
        """Return the first reason of each field with errors."""
        reasons: dict[str, str] = {}
        for error in self.errors:
            reasons.setdefault(error.field, error.reason)
        return reasons

    @property
    def is_conflict(self) -> bool:
        """Return whether any of the errors is caused by the present state, not by the input."""
        return any(error.code == CONFLICT for error in self.errors)


def invalid(
    name: str, reason: str, hint: str = "", code: str = "invalid", *, line: int | None = None
) -> InvalidInputError:
    return InvalidInputError([FieldError(name, reason, hint, code, line)])


@dataclass
class FieldErrors:
    """Collects errors; at most `ERRORS_MAX`, so that a hostile list stays short."""

    errors: list[FieldError] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.errors)

    def __iter__(self) -> Iterator[FieldError]:
        return iter(self.errors)

    def add(
        self,
        name: str,
        reason: str,
        hint: str = "",
        code: str = "invalid",
        *,
        line: int | None = None,
    ) -> None:
        self.extend([FieldError(name, reason, hint, code, line)])

    def extend(self, errors: Iterable[FieldError]) -> None:
        self.errors += list(errors)[: max(0, ERRORS_MAX - len(self.errors))]

    def raise_any(self, order: Sequence[str] = ()) -> None:
        """Raise the collected errors, sorted by `order` of fields; other fields come last.

        Raises:
            InvalidInputError: there are errors.
        """
        if self.errors:
            raise self.as_error(order)

    def as_error(self, order: Sequence[str] = ()) -> InvalidInputError:
        """Return the collected errors as an exception, by `order`; other fields come last."""
        places: Mapping[str, int] = {name: place for place, name in enumerate(order)}
        last = len(places)
        return InvalidInputError(
            sorted(self.errors, key=lambda error: places.get(error.top_field, last))
        )
