"""Choose the recorded answers that the API's description shows as examples.

For each operation it is the answer with the most content, with one row of each list. The stage's
names are replaced by usual ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from portal.site.api_examples import FILE

USUAL = {
    r"pool-\d+": "main-pool",
    "quokka": "vision",
    "http://testserver": "https://evenshare.example.org",
}
# A tenant with odd names, whose answers are no examples.
ODD = "odd-lab"


def examples(corpus: Mapping[str, str], paths: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the `url` and `answer` for each operation that reads, by its name."""
    chosen: dict[str, tuple[int, str, Any]] = {}
    patterns = list(_patterns(paths))
    for asked, answer in sorted(corpus.items()):
        url = asked.partition(" ")[2]
        body = _body(answer)
        name = next((name for match, name in patterns if match(url.partition("?")[0])), "")
        if not name or body is None or "cursor=" in url or ODD in f"{url} {body}":
            continue
        candidate = (_content(body), url, body)
        if name not in chosen or candidate[0] > chosen[name][0]:
            chosen[name] = candidate
    return {
        name: {"url": _usual(url), "answer": body}
        for name, (_, url, body) in sorted(chosen.items())
    }


def write(found: Mapping[str, Any]) -> None:
    FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _patterns(paths: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    """Yield the pattern of each path that is read, and its operation; fixed paths come first."""
    for path in sorted(paths, key=lambda one: one.count("{")):
        if "get" in paths[path]:
            pattern = re.compile(re.sub(r"\{\w+\}", "[^/]+", path))
            yield pattern.fullmatch, paths[path]["get"]["operationId"]


def _body(answer: str) -> Any:
    """Return the body of a successful answer with usual names, or None."""
    head, _, body = answer.partition("\n\n")
    if not head.startswith("200") or "application/json" not in head:
        return None
    return _short(json.loads(_usual(body)))


def _usual(text: str) -> str:
    for word, usual in USUAL.items():
        text = re.sub(word, usual, text)
    return text


def _short(value: Any) -> Any:
    """Return a value with only the first row of each list."""
    if isinstance(value, list):
        return [_short(one) for one in value[:1]]
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    return value


def _content(body: Any) -> int:
    """Return how much a body shows: its length, less for each empty field."""
    text = json.dumps(body)
    return len(text) - 8 * sum(text.count(empty) for empty in ("null", "[]", '""'))
