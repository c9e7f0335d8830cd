"""People who sign in, and the members of a tenant."""

from __future__ import annotations

from tenants.models import Membership, Tenant, User


def find_person(username: str) -> User | None:
    """Return somebody by login name, who may sign in or not; None where there is nobody."""
    return User.objects.filter(username=username).first()


def find_active_person(username: str) -> User | None:
    """Return somebody who may sign in, by login name; None where there is nobody."""
    return User.objects.filter(username=username, is_active=True).first()


def people_listed(*, limit: int) -> tuple[list[User], int]:
    """Return who may sign in, by login name, with their tenants, and how many there are.

    Three queries, whatever the number.
    """
    rows = User.objects.filter(is_active=True).order_by("username")
    count = rows.count()
    return list(rows.prefetch_related("memberships__tenant")[:limit]), count


def members_of(tenant: Tenant) -> list[Membership]:
    """Return a tenant's people with their roles, by login name. One query."""
    rows = Membership.objects.filter(tenant=tenant).select_related("user")
    return list(rows.order_by("user__username"))
