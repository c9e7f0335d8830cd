"""A job's specification in a body: JSON, YAML, or YAML with fields of JSON that override it."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import IO, Any

from rest_framework.parsers import BaseParser
from rest_framework.views import APIView

from scheduling.requests.job_yaml import YamlError, read_yaml
from tenants.api.problems import Problem
from tenants.input.errors import FieldError, InvalidInputError, invalid

TEXT = "yaml"


class YamlParser(BaseParser):
    """Parses a body of `application/yaml` as only the field `yaml`."""

    media_type = "application/yaml"

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,  # noqa: ARG002 - DRF's signature
        parser_context: Mapping[str, Any] | None = None,  # noqa: ARG002 - DRF's signature
    ) -> Any:
        """Return the text of a body; the gate limits its size.

        Raises:
            InvalidInputError: the body is not UTF-8.
        """
        try:
            return {TEXT: stream.read().decode()}
        except UnicodeDecodeError as error:
            raise invalid(TEXT, "is not UTF-8") from error


# The parsers of views that take a specification.
SPEC_PARSERS: tuple[type[BaseParser], ...] = (*APIView.parser_classes, YamlParser)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The fields of a specification, and the line of each field that the YAML sets."""

    values: dict[str, Any]
    lines: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def located(self) -> Iterator[None]:
        """Add the lines of fields to the errors of a service."""
        try:
            yield
        except InvalidInputError as error:
            errors = map(self._located, error.errors)
            # In the order of the text; errors without a line come last.
            ordered = sorted(errors, key=lambda one: one.line or sys.maxsize)
            raise InvalidInputError(ordered) from error
        except Problem as problem:
            problem.errors = [self._located(one) for one in problem.errors]
            raise

    def _located(self, error: FieldError) -> FieldError:
        return replace(error, line=self.lines.get(error.top_field, error.line))


def read_spec(body: dict[str, Any]) -> JobSpec:
    """Return a body as a specification; the service checks its fields.

    Fields next to `yaml` override its fields; objects such as `environment` override it by key.

    Raises:
        InvalidInputError: the YAML is unreadable.
    """
    if TEXT not in body:
        return JobSpec(body)
    text = body[TEXT]
    if not isinstance(text, str):
        raise invalid(TEXT, "must be a string")
    try:
        read = read_yaml(text)
    except YamlError as error:
        raise invalid(TEXT, error.text, line=error.line) from error
    given = {name: value for name, value in body.items() if name != TEXT}
    values = read.values | {name: _merged(read.values.get(name), given[name]) for name in given}
    return JobSpec(values, {name: line for name, line in read.lines.items() if name not in given})


def _merged(before: object, given: object) -> object:
    if isinstance(before, dict) and isinstance(given, dict):
        return {**before, **given}
    return given
