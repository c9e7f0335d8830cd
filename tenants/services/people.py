"""Changes to tenants, people and memberships. Each is one audited transaction."""

import secrets
from collections.abc import Iterable

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from tenants.audit import Actor, write_audit
from tenants.input.errors import FieldErrors, invalid
from tenants.language import gettext_noop
from tenants.models import Budget, Membership, Tenant, User
from tenants.operator_transaction import member_change, operation
from tenants.requests import (
    NOBODY,
    ROLE_COMPLAINT,
    SITE_ROLE_COMPLAINT,
    MembershipRequest,
    PersonRequest,
    TenantRequest,
)

SWATCHES = 16
LOGIN_NAME_TAKEN = gettext_noop("This login name is taken.")
# 120 random bits: unguessable, but short enough to type.
PASSWORD_BYTES = 15


def open_tenant(*, actor: Actor, request: TenantRequest, books: Iterable[str]) -> Tenant:
    """Create a tenant with an empty budget in each book.

    Raises:
        InvalidInputError: on `slug`: it is taken.
        PermissionDenied: the actor may not operate.
    """
    after = {"slug": request.slug, "name": request.name, "initials": request.initials}
    with operation(actor):
        if Tenant.objects.filter(slug=request.slug).exists():
            raise invalid("slug", _("This tenant name is taken."))
        tenant = Tenant.objects.create(**after, swatch=Tenant.objects.count() % SWATCHES)
        Budget.objects.bulk_create(Budget(tenant=tenant, book=book) for book in sorted(set(books)))
        write_audit(actor, "tenant.created", f"tenant {request.slug}", after=after)
    return tenant


def add_member(*, actor: Actor, tenant: Tenant, request: MembershipRequest) -> Membership:
    """Give a person a role in a tenant, without an invitation.

    Raises:
        InvalidInputError: on `username` or `role`.
        PermissionDenied: the actor may not operate.
    """
    with operation(actor):
        check_role(request.role)
        user = User.objects.filter(username=request.username, is_active=True).first()
        if user is None:
            raise invalid("username", _(NOBODY))
        try:
            with transaction.atomic():
                membership = Membership.objects.create(user=user, tenant=tenant, role=request.role)
        except IntegrityError:
            message = _("This person is already a member: change the role in the list.")
            raise invalid("username", message) from None
        after = {"member": request.username, "role": request.role}
        write_audit(actor, "member.added", f"tenant {tenant.slug}", after=after)
    return membership


def set_member_role(*, actor: Actor, tenant: Tenant, request: MembershipRequest) -> None:
    """Change a member's role, except for the tenant's last manager.

    Raises:
        InvalidInputError: on `username` or `role`.
        PermissionDenied: the actor may not change the tenant's members.
    """
    with member_change(actor, tenant):
        check_role(request.role)
        membership = _membership(tenant, request.username)
        if membership.role == request.role:
            return
        if membership.role == Membership.Role.MANAGER:
            _check_other_manager(tenant, membership, "role")
        before, membership.role = membership.role, request.role
        membership.save(update_fields=["role"])
        write_audit(
            actor,
            "member.role_changed",
            f"tenant {tenant.slug}",
            before={"member": request.username, "role": before},
            after={"member": request.username, "role": request.role},
        )


def remove_member(*, actor: Actor, tenant: Tenant, username: str) -> None:
    """End a membership, except for the tenant's last manager. The person's jobs stay the tenant's.

    Members may end their own membership.

    Raises:
        InvalidInputError: on `username`.
        PermissionDenied: the actor may not change the tenant's members.
    """
    with member_change(actor, tenant, leaves=username == actor.user.get_username()):
        membership = _membership(tenant, username)
        if membership.role == Membership.Role.MANAGER:
            _check_other_manager(tenant, membership, "username")
        before = {"member": username, "role": membership.role}
        membership.delete()
        write_audit(actor, "member.removed", f"tenant {tenant.slug}", before=before)


def create_user(*, actor: Actor, request: PersonRequest) -> tuple[User, str]:
    """Create a person; return them and their first password, which is not stored.

    Raises:
        InvalidInputError: on `username` or `site_role`.
        PermissionDenied: the actor may not operate.
    """
    with operation(actor):
        errors = FieldErrors()
        if login_name_is_taken(request.username):
            errors.add("username", _(LOGIN_NAME_TAKEN))
        if request.site_role not in User.SiteRole.values:
            errors.add("site_role", _(SITE_ROLE_COMPLAINT))
        errors.raise_any()
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        user = User(
            username=request.username,
            first_name=request.first_name,
            last_name=request.last_name,
            site_role=request.site_role,
        )
        user.set_password(password)
        user.save()
        after = {"username": request.username, "site_role": request.site_role}
        write_audit(actor, "person.created", f"person {request.username}", after=after)
    return user, password


def login_name_is_taken(username: str) -> bool:
    """Return whether a person has this login name, in any letter case."""
    return User.objects.filter(username__iexact=username).exists()


def check_role(role: str) -> None:
    """Refuse a role that tenants do not have.

    Raises:
        InvalidInputError: on `role`.
    """
    if role not in Membership.Role.values:
        raise invalid("role", _(ROLE_COMPLAINT))


def _membership(tenant: Tenant, username: str) -> Membership:
    membership = Membership.objects.filter(tenant=tenant, user__username=username).first()
    if membership is None:
        raise invalid("username", _("This person is not a member."))
    return membership


def _check_other_manager(tenant: Tenant, membership: Membership, field: str) -> None:
    managers = Membership.objects.filter(
        tenant=tenant, role=Membership.Role.MANAGER, user__is_active=True
    )
    if not managers.exclude(pk=membership.pk).exists():
        message = _("The last manager cannot be removed: add another manager first.")
        raise invalid(field, message)
