"""Names of tenants in a certificate's sentences, as far as the viewer may see them."""

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from portal.charts.figures import plural
from scheduling.selectors.rounds.certificates import CertificateItemView
from scheduling.selectors.visibility import VisibleTenant


def name_of(seen: VisibleTenant | None) -> str:
    """Return a tenant's name, or a substitute if it is hidden."""
    return seen.name if seen else pgettext("name", "a tenant")


def other_name(seen: VisibleTenant | None) -> str:
    """Return the name of the tenant that `name_of` is compared with."""
    return seen.name if seen else pgettext("name", "another tenant")


def names_of(row: CertificateItemView) -> str:
    """Return up to three tenants that violate a line; empty if more, or if some are hidden."""
    names = [seen.name for seen in row.named]
    if not names or len(names) < row.count or len(names) > 3:
        return ""
    *first, last = names
    return _("{names} and {name}").format(names=", ".join(first), name=last) if first else last


def violators(row: CertificateItemView) -> str:
    """Return the tenants that violate a line, or how many they are."""
    return names_of(row) or plural(row.count, "tenant")
