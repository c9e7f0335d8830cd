"""Queries of people who sign in, and of a tenant's members."""

from dataclasses import dataclass

from django.db.models import Count, Q
from django.db.models.functions import Now

from tenants.models import ApiToken, Membership, Tenant, User


def find_active_person(username: str) -> User | None:
    """Return an active person by login name, or None."""
    return User.objects.filter(username=username, is_active=True).first()


@dataclass(frozen=True, slots=True)
class PeoplePage:
    """People with their tenants: active ones first, then inactive ones, each by login name.

    `active` and `inactive` count all of them, listed or not.
    """

    people: list[User]
    active: int
    inactive: int

    @property
    def left_out(self) -> int:
        """Return how many are not listed."""
        return self.active + self.inactive - len(self.people)


def people_listed(*, limit: int) -> PeoplePage:
    """Return up to `limit` people. Three queries, whatever the number."""
    counts = User.objects.aggregate(active=Count("pk", filter=Q(is_active=True)), all=Count("pk"))
    rows = User.objects.order_by("-is_active", "username")
    people = list(rows.prefetch_related("memberships__tenant")[:limit])
    return PeoplePage(people, counts["active"], counts["all"] - counts["active"])


def token_count(user: User) -> int:
    """Return the number of a person's unexpired API tokens, with one query."""
    return ApiToken.objects.filter(user=user, expires_at__gt=Now()).count()


def tokens_of(user: User) -> list[ApiToken]:
    """Return a person's unexpired API tokens, newest first, with one query."""
    return list(ApiToken.objects.filter(user=user, expires_at__gt=Now()).order_by("-id"))


def members_of(tenant: Tenant) -> list[Membership]:
    """Return a tenant's people with their roles, by login name, with one query."""
    rows = Membership.objects.filter(tenant=tenant).select_related("user")
    return list(rows.order_by("user__username"))


def person_id_named(username: str) -> int:
    """Return the id of a person by login name, or 0 if no person has it."""
    people = User.objects.filter(username=username)
    return people.values_list("pk", flat=True).first() or 0


def member_names(tenant_id: int) -> list[str]:
    """Return the login names of a tenant's members, sorted."""
    members = User.objects.filter(memberships__tenant=tenant_id).order_by("username")
    return list(members.values_list("username", flat=True))
