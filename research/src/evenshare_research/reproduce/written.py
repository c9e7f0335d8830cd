"""What docs/reproduce.md says of parts already: they stand there until they are run again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from evenshare_research.reproduce.model import ClaimVerdict

CLAIM_HEAD = ("section", "claim", "paper", "here", "verdict")
MEASURED = "*Measured* "
_RAN = "*Run*: "
_MADE = re.compile(r"^Made (.+)$", re.MULTILINE)
_VERDICT = re.compile(r"\| \*([a-z ]+)\*(?:: (?:[^|]|\\\|)*)? \|$")


class WrittenPart(NamedTuple):
    """A part's section as it stands, without its heading, and its claims' verdicts."""

    text: str
    verdicts: tuple[ClaimVerdict, ...]


def written_parts(document: str) -> Mapping[str, WrittenPart]:
    """Return the sections of parts that were run, by their titles.

    A section that does not say when it was measured was when the whole document was made.
    """
    made = _MADE.search(document)
    sections = re.split(r"^## (.+)\n", document, flags=re.MULTILINE)
    parts = {}
    for title, section in zip(sections[1::2], sections[2::2], strict=True):
        before, ran, after = section.partition(_RAN)
        if not ran:
            continue
        if MEASURED not in section and made:
            before += f"{MEASURED}{made[1]}\n\n"
        parts[title] = WrittenPart(f"{before}{ran}{after}".strip() + "\n", _verdicts(section))
    return parts


def _verdicts(section: str) -> tuple[ClaimVerdict, ...]:
    head = "| " + " | ".join(CLAIM_HEAD) + " |"
    lines = iter(section.split("\n"))
    if head not in lines:
        return ()
    next(lines, "")  # the line under the head
    verdicts = []
    for line in lines:
        if not line.startswith("|"):
            break
        match = _VERDICT.search(line)
        if match is None:
            raise ValueError(f"docs/reproduce.md: a claim without a verdict: {line[:80]}")
        verdicts.append(ClaimVerdict(match[1]))
    return tuple(verdicts)
