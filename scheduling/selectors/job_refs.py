"""Jobs as a viewer may know them."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class JobRef:
    """A job that the viewer may know."""

    uid: UUID
    name: str
