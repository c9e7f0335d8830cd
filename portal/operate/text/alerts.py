"""An alert of the operator's queue."""

from dataclasses import dataclass, field

from django.utils.translation import pgettext


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert of the queue. `kind` is a state (bad, warn, note); `release` is a job's URL."""

    key: str
    kind: str
    label: str
    title: str
    text: str
    href: str
    button: str = field(default_factory=lambda: pgettext("button", "Open"))
    release: str = ""
