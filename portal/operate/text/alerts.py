"""A line of the operator's queue."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Alert:
    """One line of the queue. `kind` is a state (bad, warn, note); `release` a job's address."""

    key: str
    kind: str
    label: str
    title: str
    text: str
    href: str
    button: str = "Open"
    release: str = ""
