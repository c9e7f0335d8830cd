"""Queries of tenants, by name and in lists."""

from datetime import datetime

from django.db.models import Count, Q

from tenants.answers import Answer, answer_of
from tenants.models import Membership, Tenant


def find_tenant(slug: str) -> Tenant | None:
    return Tenant.objects.filter(slug=slug).first()


def all_tenants() -> list[Tenant]:
    """Return all tenants in the stable order that determines their badges, with one query."""
    return list(Tenant.objects.order_by("id"))


class TenantRow(Answer, frozen=True):
    """A tenant with its number of people."""

    slug: str
    name: str
    initials: str
    people: int
    managers: int
    created_at: datetime


def tenant_sizes() -> list[TenantRow]:
    """Return all tenants by slug with the number of their people, with one query."""
    rows = Tenant.objects.annotate(
        people=Count("memberships"),
        managers=Count("memberships", filter=Q(memberships__role=Membership.Role.MANAGER)),
    )
    return [answer_of(TenantRow, row) for row in rows.order_by("slug")]
