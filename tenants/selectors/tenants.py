"""Tenants, by name and in lists."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Q

from tenants.models import Membership, Tenant


def find_tenant(slug: str) -> Tenant | None:
    """Return the tenant of that slug, or None."""
    return Tenant.objects.filter(slug=slug).first()


def all_tenants() -> list[Tenant]:
    """Return all tenants in the stable order that gives them their badges. One query."""
    return list(Tenant.objects.order_by("id"))


@dataclass(frozen=True, slots=True)
class TenantSize:
    """A tenant with the number of its people, and how many of them manage it."""

    slug: str
    name: str
    initials: str
    created_at: datetime
    people: int
    managers: int


def tenant_sizes() -> list[TenantSize]:
    """Return all tenants by slug with the number of their people. One query."""
    rows = Tenant.objects.annotate(
        people=Count("memberships"),
        managers=Count("memberships", filter=Q(memberships__role=Membership.Role.MANAGER)),
    )
    return [
        TenantSize(row.slug, row.name, row.initials, row.created_at, row.people, row.managers)
        for row in rows.order_by("slug")
    ]
