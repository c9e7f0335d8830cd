"""Names of tenants in a certificate's sentences, as far as the viewer may see them."""

from scheduling.selectors.rounds.certificates import CertificateItemView
from scheduling.selectors.visibility import VisibleTenant


def name_of(seen: VisibleTenant | None, nobody: str = "a tenant") -> str:
    """Return a tenant's name, or a substitute if it is hidden."""
    return seen.name if seen else nobody


def names_of(row: CertificateItemView) -> str:
    """Return up to three tenants that violate a line; empty if more, or if some are hidden."""
    names = [seen.name for seen in row.named]
    if not names or len(names) < row.count or len(names) > 3:
        return ""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
