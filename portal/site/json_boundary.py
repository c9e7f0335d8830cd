"""The only parser of JSON from outside: it stops input that harms Python or Postgres.

Size, depth and the length of numbers are checked before parsing. Invalid UTF-8, NaN, Infinity,
duplicate names, NUL and half surrogate pairs are refused. Numbers with a point are Decimals.
"""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import IO, Any, NoReturn

import msgspec
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from tenants.api.problems import Problem
from tenants.input.errors import FieldError

BODY_MAX = 2**20
DEPTH_MAX = 32
DIGITS_MAX = 40
_DIGITS = f"A number has more than {DIGITS_MAX} digits."
# Matches a whole string, so that brackets inside strings do not count.
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_NOT_BRACKETS = re.compile(rb"[^\[\]{}]+")
_UNFIT = re.compile("[\x00\ud800-\udfff]")


class StrictJSONParser(BaseParser):
    """Parses `application/json` bodies for every view of the API."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,  # noqa: ARG002 - DRF's signature
        parser_context: Mapping[str, Any] | None = None,  # noqa: ARG002 - DRF's signature
    ) -> Any:
        """Return the value of a body.

        Raises:
            Problem: the body breaks a rule, which the problem names.
        """
        return json_read(stream.read(BODY_MAX + 1))


class JSONRenderer(BaseRenderer):
    """Writes `application/json`; a problem's response sets its own media type."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,  # noqa: ARG002 - DRF's signature
        renderer_context: Mapping[str, Any] | None = None,  # noqa: ARG002 - DRF's signature
    ) -> bytes:
        """Return the bytes of a response; empty for None."""
        return b"" if data is None else msgspec.json.encode(data)


class AlwaysJSON(BaseContentNegotiation):
    """Responds in JSON whatever `Accept` is: it is the only format, also of errors."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        """Return the parser of the body's media type, or None if there is none."""
        kind = (request.content_type or "").partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == kind), None)

    def select_renderer(
        self,
        request: Request,  # noqa: ARG002 - DRF's signature
        renderers: Any,
        format_suffix: str | None = None,  # noqa: ARG002 - DRF's signature
    ) -> Any:
        return renderers[0], renderers[0].media_type


def json_read(body: bytes) -> Any:
    """Return the value of a body.

    Raises:
        Problem: 413 if it is too large, else 400.
    """
    if len(body) > BODY_MAX:
        raise Problem("too_large")
    if _depth(body) > DEPTH_MAX:
        raise _refused(f"The JSON is nested more than {DEPTH_MAX} levels deep.")
    try:
        value = json.loads(
            body.decode(),
            object_pairs_hook=_object,
            parse_int=_whole,
            parse_float=_decimal,
            parse_constant=_constant,
        )
    except UnicodeDecodeError as error:
        raise _refused("The body is not UTF-8.") from error
    except (ValueError, RecursionError) as error:
        raise _refused("The body is not JSON.") from error
    if b"\\u" in body:  # only an escape can produce text that UTF-8 cannot encode
        _refuse_unfit(value)
    return value


def _depth(body: bytes) -> int:
    """Return the nesting depth of brackets outside strings: two compiled patterns, no recursion."""
    depth = deepest = 0
    for sign in _NOT_BRACKETS.sub(b"", _STRING.sub(b"", body)):
        if sign in b"[{":
            depth += 1
            deepest = max(deepest, depth)
            if deepest > DEPTH_MAX:
                break
        else:
            depth -= 1
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                shown = ascii(name)[1:-1][:80]
                errors = [FieldError(shown, "is given twice", "Give it once.")]
                raise Problem("invalid_json", "An object has a name twice.", errors)
            seen.add(name)
    return read


def _whole(text: str) -> int:
    if len(text) > DIGITS_MAX:
        raise _refused(_DIGITS)
    return int(text)


def _decimal(text: str) -> Decimal:
    if len(text) > DIGITS_MAX:
        raise _refused(_DIGITS)
    return Decimal(text)


def _constant(text: str) -> NoReturn:
    raise _refused(f"{text} is not JSON.")


def _refuse_unfit(value: Any) -> None:
    """Refuse NUL and half surrogate pairs, with the place of the fault."""
    open_values: list[tuple[str, Any]] = [("", value)]
    while open_values:
        place, part = open_values.pop()
        if isinstance(part, str) and (unfit := _UNFIT.search(part)):
            what = "a NUL character" if unfit[0] == "\x00" else "half a surrogate pair"
            errors = [FieldError(place, f"has {what}", "Leave it out.")]
            raise Problem("invalid_json", f"A text has {what}.", errors)
        if isinstance(part, list):
            open_values += [(f"{place}[{i}]", item) for i, item in enumerate(part)]
        elif isinstance(part, dict):
            for name, item in part.items():
                shown = ascii(name)[1:-1][:80]
                here = f"{place}.{shown}" if place else shown
                open_values += [(here, name), (here, item)]


def _refused(detail: str) -> Problem:
    return Problem("invalid_json", detail)
