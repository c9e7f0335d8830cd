"""Invitations to a tenant: made and revoked by its managers, accepted once by a person."""

import secrets
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.contrib.auth.hashers import make_password
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from tenants.audit import Actor, write_audit
from tenants.input.errors import invalid
from tenants.language import gettext_noop
from tenants.models import Invitation, Membership, Tenant, User
from tenants.operator_transaction import manages_members, member_change
from tenants.rate import Rate, RateError, take
from tenants.requests import NO_LOGIN, InvitationRequest, NewcomerRequest
from tenants.scopes import site_scope
from tenants.selectors.people import open_invitations, still_open
from tenants.services.accounts import NewPassword, check_new_password
from tenants.services.people import LOGIN_NAME_TAKEN, check_role, login_name_is_taken
from tenants.tokens import SECRET_BYTES, digest_of

PREFIX = "ei_"
VALID_FOR = timedelta(hours=72)
PER_TENANT = 50
# Answers show which login names exist, so names are limited: by manager, and by link.
NAMES_OF_MANAGER = Rate(per_s=1 / 300, full=50)
NAMES_OF_LINK = Rate(per_s=1 / 300, full=10)
TOO_MANY_NAMES = gettext_noop("Too many login names were tried: wait {minutes} minutes.")
log = structlog.get_logger(__name__)


def join_path(secret: str) -> str:
    """Return the path of an invitation's link. The secret is in the query, which no log contains.

    A message to the invited person would be sent by the caller of `invite`, with this path.
    """
    return f"/join/?invitation={secret}"


class InvitationGoneError(Exception):
    """The invitation is unknown, used, expired or revoked, or its maker lost the right to it."""


def invite(
    *, actor: Actor, tenant: Tenant, request: InvitationRequest, now: datetime
) -> tuple[Invitation, str]:
    """Make an invitation; return it with the secret of its link, which is shown only now.

    Raises:
        InvalidInputError: on `username` or `role`, or the tenant has too many open invitations.
        PermissionDenied: the actor may not change the tenant's members.
    """
    if request.username:
        _count_name(f"invited-names:{actor.user.pk}", NAMES_OF_MANAGER)
    with member_change(actor, tenant):
        check_role(request.role)
        user = _known(request.username)
        if user is not None and Membership.objects.filter(tenant=tenant, user=user).exists():
            raise invalid("username", _("This person is already a member."))
        if open_invitations(tenant.pk, now).count() >= PER_TENANT:
            raise invalid(
                "note",
                _("{most} invitations are open: revoke one first.").format(most=PER_TENANT),
            )
        after = {"member": request.username, "role": request.role}
        if user is not None or not request.username:
            return _invited(actor, tenant, user, request, now)
        # The record stays: it is in this transaction, which the refusal does not undo.
        write_audit(actor, "member.unknown", f"tenant {tenant.slug}", after=after)
    raise invalid("username", _(NO_LOGIN))


def revoke_invitation(*, actor: Actor, tenant: Tenant, uid: UUID, now: datetime) -> bool:
    """Revoke an open invitation of a tenant; return whether it existed.

    Raises:
        PermissionDenied: the actor may not change the tenant's members.
    """
    with member_change(actor, tenant):
        if not open_invitations(tenant.pk, now).filter(uid=uid).update(revoked_at=now):
            return False
        before = {"invitation": str(uid)}
        write_audit(actor, "member.invitation_revoked", f"tenant {tenant.slug}", before=before)
    return True


def accept_invitation(*, actor: Actor, key: str | UUID, now: datetime) -> Membership:
    """Make the actor a member. `key`: the link's secret, or the id of an invitation for the actor.

    Raises:
        InvitationGoneError: it is not valid (any more), or it is for another person.
        InvalidInputError: the actor is already a member, and the invitation stays open.
    """
    with site_scope():
        invitation = _lock_open(key, now)
        if invitation.user_id != actor.user.pk and (
            invitation.user_id is not None or isinstance(key, UUID)
        ):
            raise InvitationGoneError
        return _join(actor, invitation, now)


def check_invitation(secret: str, now: datetime) -> Invitation:
    """Return the open invitation of a link, without using it.

    Raises:
        InvitationGoneError: it is not valid (any more).
    """
    return _open_invitation(Q(digest=digest_of(secret)), now)


def accept_as_newcomer(
    *, request: NewcomerRequest, password: NewPassword, secret: str, now: datetime, request_id: str
) -> Membership:
    """Create a person with their own password, and make them a member by an invitation's link.

    Raises:
        InvitationGoneError: it is not valid (any more), or it is for a known person.
        InvalidInputError: on `username`, or as `check_new_password`.
    """
    user = User(
        username=request.username, first_name=request.first_name, last_name=request.last_name
    )
    check_new_password(user, password)
    # Only holders of a valid link may have a password hashed, which is slow by design.
    with site_scope():
        link = check_invitation(secret, now)
    if link.user_id is not None:
        raise InvitationGoneError
    _count_name(f"newcomers-names:{link.pk}", NAMES_OF_LINK)
    with site_scope():
        is_taken = login_name_is_taken(user.username)
    if is_taken:
        log.info("invitation.name_taken", invitation=str(link.uid), made_by=link.made_by_id)
        raise invalid("username", _(LOGIN_NAME_TAKEN))
    user.password = make_password(password.new_password)
    with site_scope():
        invitation = _lock_open(secret, now)
        if login_name_is_taken(user.username):  # meanwhile
            raise invalid("username", _(LOGIN_NAME_TAKEN))
        try:
            with transaction.atomic():
                user.save()
        except IntegrityError:
            raise invalid("username", _(LOGIN_NAME_TAKEN)) from None
        actor = Actor(user, request_id)
        after = {"username": user.username, "site_role": user.site_role}
        write_audit(actor, "person.created", f"person {user.username}", after=after)
        return _join(actor, invitation, now)


def _known(username: str) -> User | None:
    if not username:
        return None
    return User.objects.filter(username=username, is_active=True).first()


def _invited(
    actor: Actor, tenant: Tenant, user: User | None, request: InvitationRequest, now: datetime
) -> tuple[Invitation, str]:
    secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    made = Invitation.objects.create(
        tenant=tenant,
        user=user,
        role=request.role,
        note=request.note,
        digest=digest_of(secret),
        made_by=actor.user,
        made_at=now,
        expires_at=now + VALID_FOR,
    )
    after = {"invitation": str(made.uid), "member": request.username, "role": request.role}
    write_audit(actor, "member.invited", f"tenant {tenant.slug}", after=after)
    return made, secret


def _count_name(key: str, rate: Rate) -> None:
    """Count a login name that a person tries, in its own transaction.

    Known names count too: otherwise the refusal would show which names are unknown.

    Raises:
        InvalidInputError: on `username`: too many.
    """
    try:
        take(key, rate)
    except RateError as error:
        minutes = -(-error.retry_after_s // 60)
        raise invalid("username", _(TOO_MANY_NAMES).format(minutes=minutes)) from None


def _lock_open(key: str | UUID, now: datetime) -> Invitation:
    named = Q(uid=key) if isinstance(key, UUID) else Q(digest=digest_of(key))
    tenant_id = _open_invitation(named, now).tenant_id
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant_id)
    # Read again: it may have been used or revoked before the lock.
    return _open_invitation(named, now)


def _open_invitation(named: Q, now: datetime) -> Invitation:
    """Return an open invitation whose maker may still invite.

    A manager who was removed cannot come back by a link made before.
    """
    invitation = still_open(now).filter(named).first()
    if invitation is None or not manages_members(invitation.made_by_id, invitation.tenant_id):
        raise InvitationGoneError
    return invitation


def _join(actor: Actor, invitation: Invitation, now: datetime) -> Membership:
    tenant, role = invitation.tenant, invitation.role
    if Membership.objects.filter(tenant=tenant, user=actor.user).exists():
        raise invalid(
            "username", _("You are already a member of {tenant}.").format(tenant=tenant.name)
        )
    membership = Membership.objects.create(tenant=tenant, user=actor.user, role=role)
    invitation.used_at, invitation.used_by = now, actor.user
    invitation.save(update_fields=["used_at", "used_by"])
    after = {
        "invitation": str(invitation.uid), "member": actor.user.get_username(), "role": role,
    }  # fmt: skip # a row
    write_audit(actor, "member.joined", f"tenant {tenant.slug}", after=after)
    return membership
