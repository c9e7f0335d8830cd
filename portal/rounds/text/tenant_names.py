"""Tenants as a certificate's sentences name them, as far as the viewer may see them."""

from __future__ import annotations

from scheduling.selectors.rounds.certificates import CertificateItemView
from scheduling.selectors.visibility import VisibleTenant


def name_of(seen: VisibleTenant | None, nobody: str = "a tenant") -> str:
    """Return a tenant's name, or what stands for one that is out of sight."""
    return seen.name if seen else nobody


def names_of(row: CertificateItemView) -> str:
    """Return who breaks a line, up to three names; "" where not all of them can be told."""
    names = [seen.name for seen in row.named]
    if not names or len(names) < row.count or len(names) > 3:
        return ""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
