"""Queries of people who sign in, of a tenant's members, and of its invitations."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Now

from tenants.answers import Answer
from tenants.models import ApiToken, Invitation, Membership, Tenant, User


def find_active_person(username: str) -> User | None:
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
    people = User.objects.filter(username=username)
    return people.values_list("pk", flat=True).first() or 0


def member_names(tenant_id: int) -> list[str]:
    members = User.objects.filter(memberships__tenant=tenant_id).order_by("username")
    return list(members.values_list("username", flat=True))


class MemberRow(Answer, frozen=True):
    """A member of a tenant. An inactive person cannot sign in."""

    username: str
    name: str
    role: str
    is_active: bool


class InvitationRow(Answer, frozen=True):
    """An open invitation to a tenant; `username` is empty if the holder of its link may join."""

    id: UUID
    username: str
    role: str
    note: str
    made_by: str
    made_at: datetime
    expires_at: datetime


def member_rows(tenant: Tenant) -> list[MemberRow]:
    """Return a tenant's members by login name, with one query."""
    return [
        MemberRow(row.user.username, row.user.get_full_name(), row.role, row.user.is_active)
        for row in members_of(tenant)
    ]


def open_invitations(tenant_id: int, now: datetime) -> QuerySet[Invitation]:
    """Return a tenant's open invitations, newest first."""
    return still_open(now).filter(tenant=tenant_id)


def invitations_for(user: User, now: datetime) -> list[Invitation]:
    """Return a known person's open invitations, newest first, with one query."""
    return list(still_open(now).filter(user=user))


def invitation_rows(tenant: Tenant, now: datetime) -> list[InvitationRow]:
    """Return a tenant's open invitations, newest first, with one query."""
    return [invitation_row(row) for row in open_invitations(tenant.pk, now)]


def invitation_row(row: Invitation) -> InvitationRow:
    return InvitationRow(
        row.uid,
        row.user.username if row.user else "",
        row.role,
        row.note,
        row.made_by.username,
        row.made_at,
        row.expires_at,
    )


def still_open(now: datetime) -> QuerySet[Invitation]:
    """Return all invitations that are neither used, revoked nor expired, newest first."""
    rows = Invitation.objects.filter(
        used_at__isnull=True, revoked_at__isnull=True, expires_at__gt=now
    )
    return rows.select_related("tenant", "user", "made_by").order_by("-id")
