"""The viewer: a person with their roles. Read-only."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from tenants.models import Membership, User


@dataclass(frozen=True, slots=True)
class MembershipFacts:
    """A person's membership in a tenant."""

    tenant_id: int
    slug: str
    name: str
    role: str


@dataclass(frozen=True, slots=True)
class Access:
    """A viewer: name, role for the site, and memberships by slug.

    An anonymous viewer has neither role nor memberships.
    """

    user_id: int | None = None
    name: str = ""
    site_role: str = ""
    memberships: tuple[MembershipFacts, ...] = ()

    @property
    def home(self) -> MembershipFacts | None:
        """Return the tenant that this person sees first."""
        return self.memberships[0] if self.memberships else None

    @property
    def is_unassigned(self) -> bool:
        """Return whether a signed-in person has neither a tenant nor a role for the site."""
        return self.user_id is not None and not self.memberships and not self.site_role

    @property
    def tenant_ids(self) -> list[int]:
        """Return the ids of the person's tenants, by slug."""
        return [membership.tenant_id for membership in self.memberships]

    def membership_of(self, tenant_id: int) -> MembershipFacts | None:
        return next((row for row in self.memberships if row.tenant_id == tenant_id), None)

    def membership_named(self, slug: object) -> MembershipFacts | None:
        return next((row for row in self.memberships if row.slug == slug), None)


def access_of(user: User) -> Access:
    """Return the access of a signed-in person, with one query."""
    return accesses_of([user])[user.pk]


def accesses_of(people: Collection[User]) -> dict[int, Access]:
    """Return the access of each of these signed-in people, with one query."""
    rows = Membership.objects.filter(user__in=[person.pk for person in people])
    facts = rows.order_by("tenant__slug").values_list(
        "user_id", "tenant_id", "tenant__slug", "tenant__name", "role"
    )
    memberships: defaultdict[int, list[MembershipFacts]] = defaultdict(list)
    for user_id, *fields in facts:
        memberships[user_id].append(MembershipFacts(*fields))  # type: ignore[arg-type]  # of a row
    return {
        person.pk: Access(
            user_id=person.pk,
            name=person.get_full_name() or person.get_username(),
            site_role=person.site_role,
            memberships=tuple(memberships[person.pk]),
        )
        for person in people
    }


def home_of(username: str) -> MembershipFacts | None:
    """Return the tenant that a person sees first, by their login name."""
    user = User.objects.filter(username=username).first()
    return access_of(user).home if user else None
