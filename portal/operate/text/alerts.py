"""An alert of the operator's queue."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert of the queue. `kind` is a state (bad, warn, note); `release` is a job's URL."""

    key: str
    kind: str
    label: str
    title: str
    text: str
    href: str
    button: str = "Open"
    release: str = ""
