"""Decides what a viewer sees of a pool's tenants; no other module does.

All viewers see their own tenants by name and their own jobs. The pool's `visibility` sets what they
see of other tenants: names, stable pseudonyms, or totals only. Users with a site role see all
names; only operators see the jobs of other tenants.
"""

from dataclasses import dataclass, field
from typing import Annotated

from django.db.models import Min
from django.utils.translation import gettext as _

from scheduling.models import Pool
from tenants.answers import Answer, Hidden, formatted_as
from tenants.language import gettext_noop
from tenants.models import Quota, Tenant, User
from tenants.scopes import site_reading
from tenants.selectors.access import Access

MARKS = 16
# Shown for a tenant that the viewer may not see.
OTHER_TENANT = gettext_noop("another tenant")


def _or_null(text: str) -> str | None:
    return text or None


class VisibleTenant(Answer, frozen=True):
    """A tenant, as far as you may see it."""

    COMPONENT = "TenantRef"

    id: Hidden[int]
    number: Hidden[int]  # for sorting the tenants of a pool
    name: str
    initials: Hidden[str]
    swatch: Hidden[int]  # 0-15: its colour and pattern in charts
    # "" if the viewer may not open its pages
    slug: Annotated[str, formatted_as(_or_null, nullable=True)] = ""
    you: bool = False


@dataclass(frozen=True, slots=True)
class Visibility:
    """A viewer's rights to see the tenants of one pool."""

    setting: str
    own: frozenset[int] = frozenset()
    all_names: bool = False
    all_jobs: bool = False
    known: dict[int, VisibleTenant] = field(default_factory=dict)

    def of(self, tenant: int) -> VisibleTenant | None:
        """Return a tenant as the viewer sees it, or None if it is only included in totals."""
        return self.known.get(tenant)

    def jobs_of(self, tenant: int) -> bool:
        """Return whether the viewer may see a tenant's jobs by name."""
        return self.all_jobs or tenant in self.own

    @property
    def hides(self) -> bool:
        """Whether rows of other tenants are hidden."""
        return not self.all_names and self.setting == Pool.Visibility.OWN

    @property
    def disguises(self) -> bool:
        """Whether other tenants have pseudonyms."""
        return not self.all_names and self.setting == Pool.Visibility.PSEUDONYMS


def read_visibility(pool_id: int, access: Access) -> Visibility:
    """Return what a user may see of the tenants that have or had quota in a pool. Three queries.

    A pseudonym is the tenant's rank by its first quota in the pool, so it does not change when
    tenants come and go.
    """
    with site_reading():
        return _read_visibility(pool_id, access)


def _read_visibility(pool_id: int, access: Access) -> Visibility:
    setting = Pool.objects.values_list("visibility", flat=True).get(pk=pool_id)
    own = frozenset(access.tenant_ids)
    site = access.site_role != User.SiteRole.NONE
    visibility = Visibility(setting, own, site, access.site_role == User.SiteRole.OPERATOR)
    firsts = (
        Quota.objects.filter(pool_id=pool_id).values("tenant").annotate(first=Min("id"))
    ).order_by("first")
    order = [row["tenant"] for row in firsts]
    tenants = Tenant.objects.in_bulk(order)
    visibility.known.update(_known(visibility, [tenants[tenant_id] for tenant_id in order]))
    return visibility


def _known(visibility: Visibility, tenants: list[Tenant]) -> dict[int, VisibleTenant]:
    named = [
        row
        for row in tenants
        if row.pk in visibility.own or not (visibility.hides or visibility.disguises)
    ]
    seen = _by_name(
        visibility, named, {row.pk: number for number, row in enumerate(tenants, start=1)}
    )
    if visibility.disguises:
        taken = {row.swatch for row in seen.values()}
        free = [swatch for swatch in range(MARKS) if swatch not in taken] or list(range(MARKS))
        for number, row in enumerate(tenants, start=1):
            if row.pk not in seen:
                swatch = free[(number - 1) % len(free)]
                seen[row.pk] = VisibleTenant(
                    row.pk,
                    number,
                    _("tenant {number}").format(number=number),
                    f"{number:02d}",
                    swatch,
                )
    return dict(sorted(seen.items(), key=lambda item: item[1].number))


def _by_name(
    visibility: Visibility, tenants: list[Tenant], numbers: dict[int, int]
) -> dict[int, VisibleTenant]:
    seen: dict[int, VisibleTenant] = {}
    codes: set[str] = set()
    for row in tenants:
        # Initials are unique in a pool; if they are taken, a tenant gets its number instead.
        code = row.initials if row.initials not in codes else f"{numbers[row.pk]:02d}"
        codes.add(code)
        linked = row.pk in visibility.own or visibility.all_jobs
        seen[row.pk] = VisibleTenant(
            id=row.pk,
            number=numbers[row.pk],
            name=row.name,
            initials=code,
            swatch=row.swatch % MARKS,
            slug=row.slug if linked else "",
            you=row.pk in visibility.own,
        )
    return seen
