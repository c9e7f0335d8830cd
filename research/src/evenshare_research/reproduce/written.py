"""Existing sections of docs/reproduce. A section stays until its part runs again."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from evenshare_research.reproduce.model import ClaimVerdict

CLAIM_HEAD = ("section", "claim", "paper", "here", "verdict")
MEASURED = "*Measured* "
_RAN, _NOT_RUN = "*Run*: ", "*Not run* "
_VERDICT = re.compile(r"\| \*([a-z ]+)\*(?:: (?:[^|]|\\\|)*)? \|$")


class PlacedVerdict(NamedTuple):
    """The verdict on a claim, and the section of the paper that makes the claim."""

    place: str
    verdict: ClaimVerdict


class WrittenPart(NamedTuple):
    """A part's existing section without its heading, and the verdicts of its claims.

    `verdicts` is None if the part was not run with this version, so that the section shows earlier
    measurements.
    """

    text: str
    verdicts: tuple[PlacedVerdict, ...] | None


def written_parts(document: str) -> Mapping[str, WrittenPart]:
    """Return the sections that show figures, by title."""
    sections = re.split(r"^## (.+)\n", document, flags=re.MULTILINE)
    parts = {}
    for title, section in zip(sections[1::2], sections[2::2], strict=True):
        text = re.split(r"^# ", section, flags=re.MULTILINE)[0].strip() + "\n"
        if _RAN in text:
            parts[title] = WrittenPart(text, _verdicts(text))
        elif _NOT_RUN in text and "\n### " in text:
            parts[title] = WrittenPart(text, None)
    return parts


def _verdicts(section: str) -> tuple[PlacedVerdict, ...]:
    head = "| " + " | ".join(CLAIM_HEAD) + " |"
    lines = iter(section.split("\n"))
    if head not in lines:
        return ()
    next(lines, "")  # the line under the table's header
    verdicts = []
    for line in lines:
        if not line.startswith("|"):
            break
        match = _VERDICT.search(line)
        if match is None:
            raise ValueError(f"docs/reproduce: a claim without a verdict: {line[:80]}")
        place = line.split("|")[1].strip()
        verdicts.append(PlacedVerdict(place, ClaimVerdict(match[1])))
    return tuple(verdicts)
