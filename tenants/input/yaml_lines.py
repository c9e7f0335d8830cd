"""Line numbers of YAML errors as editors count them, because YAML has more kinds of line breaks."""

import re
from itertools import accumulate
from typing import Any

import yaml

# YAML 1.1 also ends a line at the last three; editors and browsers do not.
_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_EDITORS = frozenset({"\r\n", "\r", "\n"})
_FORBIDDEN = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|(?<!^)\ufeff"
)
# For these errors the parser marks a line after the unfinished one.
_FIELD = re.compile(r"[^\s\]}]+:(\s|$)")
_UNFINISHED = ("could not find expected ':'", "found unexpected end of stream")
_FLOWS = ("while parsing a flow sequence", "while parsing a flow mapping")


def editor_lines(text: str) -> list[int]:
    """Return the editor's line, counted from 1, at which each YAML line starts."""
    ends = (match[0] in _EDITORS for match in _BREAK.finditer(text))
    return list(accumulate(ends, initial=1))


def error_line(text: str, error: yaml.YAMLError) -> int | None:
    """Return the mistake's line in the editor, counted from 1, or None if it has no position."""
    lines = editor_lines(text)
    if not isinstance(error, yaml.MarkedYAMLError):
        match = _FORBIDDEN.search(text)
        return lines[len(_BREAK.findall(text[: match.start()]))] if match else None
    mark = _mark_to_mend(text, error)
    # If the text ends unfinished, the parser's mark is one line below its end.
    last = len(_BREAK.findall(text.rstrip("\r\n\x85\u2028\u2029")))
    return lines[min(mark.line, last)] if mark else None


def _mark_to_mend(text: str, error: yaml.MarkedYAMLError) -> Any:
    begun, stopped = error.context_mark, error.problem_mark
    if begun is None or stopped is None:
        return stopped or begun
    # A list that was not closed extends to the line at which another field starts.
    is_field = _FIELD.match([*_BREAK.split(text), ""][stopped.line])
    is_open = (error.context or "") in _FLOWS and begun.line < stopped.line and is_field
    return begun if is_open or str(error.problem).lower() in _UNFINISHED else stopped
