"""A tenant's members and its invitations, for its managers to change."""

from typing import ClassVar
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.answers import plain
from tenants.api.base import ApiView, Who, actor_of
from tenants.api.operate import EDITS, refusal, request_of
from tenants.api.problems import Problem, not_there
from tenants.api.resources import Listed, Page, described
from tenants.input.errors import InvalidInputError
from tenants.models import Tenant
from tenants.permissions import Action
from tenants.refusals import record_refusal
from tenants.requests import InvitationRequest, MembershipRequest, RoleRequest
from tenants.scopes import site_scope, tenant_scope
from tenants.selectors.people import (
    InvitationRow,
    MemberRow,
    invitation_row,
    invitation_rows,
    member_rows,
)
from tenants.services.invitations import invite, join_path, revoke_invitation
from tenants.services.people import remove_member, set_member_role
from tenants.tokens import Scope

READ, WRITE = Scope.READ.value, Scope.MEMBERS_WRITE.value
MANAGERS_ONLY = "Only the tenant's managers change its members."


class InvitationMade(InvitationRow, frozen=True):
    """A new invitation with its link, which is shown only now."""

    path: str


class MembersView(ApiView):
    """A view on a tenant's people. A refused change is recorded in the audit log."""

    who = Who.TENANT

    def handle_exception(self, exc: Exception) -> Response:
        """Return the refusal of a change, with its fields."""
        if isinstance(exc, PermissionDenied) or (
            isinstance(exc, Problem) and exc.reason_code == "role"
        ):
            record_refusal(
                actor_of(self.person), f"{self.request.method} {self.request.path}", MANAGERS_ONLY
            )
        problem = refusal(exc) if isinstance(exc, InvalidInputError) else exc
        return super().handle_exception(problem)

    def managed(self, slug: str) -> Tenant:
        """Return the tenant if the caller may change its members.

        Raises:
            Problem: 404 if it is not visible, 403 if the role or the token does not allow it.
        """
        tenant = self.tenant(slug, Action.MANAGE_MEMBERS)
        if self.request.method in EDITS:
            self.require_scope(Action.MANAGE_MEMBERS, tenant.pk)
        return tenant


class MemberList(Listed, MembersView):
    """List a tenant's members with their roles, by login name."""

    address = "tenants/<slug:slug>/members"
    operation = "member_list"
    row = MemberRow
    about = "A tenant's members."
    shows = ("User.username", "User.first_name")

    def page(self, slug: str) -> Page:
        tenant = self.tenant(slug)
        with site_scope():
            return Page(member_rows(tenant))


class MemberOne(MembersView):
    address = "tenants/<slug:slug>/members/<str:username>"
    scopes: ClassVar[dict[str, str]] = {"PATCH": WRITE, "DELETE": WRITE}
    http_method_names = ["patch", "delete"]

    @described("member_role", RoleRequest, MemberRow)
    def patch(self, request: Request, slug: str, username: str) -> Response:
        """Set a member's role; the last manager keeps theirs."""
        tenant = self.managed(slug)
        wanted = MembershipRequest(
            username=username, role=request_of(RoleRequest, request.data).role
        )
        set_member_role(actor=actor_of(self.person), tenant=tenant, request=wanted)
        with site_scope():
            rows = member_rows(tenant)
        changed = next((row for row in rows if row.username == username), None)
        if changed is None:
            raise not_there()  # removed meanwhile
        return Response(plain(changed))

    @described("member_remove", None, None, 204)
    def delete(self, request: Request, slug: str, username: str) -> Response:  # noqa: ARG002 - DRF's
        """Remove a member, except for the last manager. Members may remove themselves."""
        leaves = username == self.person.get_username()
        tenant = self.tenant(slug) if leaves else self.managed(slug)
        remove_member(actor=actor_of(self.person), tenant=tenant, username=username)
        return Response(status=204)


class InvitationList(Listed, MembersView):
    """List a tenant's open invitations, newest first, without their links; for its managers."""

    address = "tenants/<slug:slug>/invitations"
    operation = "invitation_list"
    row = InvitationRow
    about = "A tenant's open invitations."
    shows = ("Invitation.note", "Invitation.uid")
    scopes: ClassVar[dict[str, str]] = {"GET": READ, "POST": WRITE}

    def page(self, slug: str) -> Page:
        tenant = self.managed(slug)
        with tenant_scope(tenant.pk):
            return Page(invitation_rows(tenant, timezone.now()))

    @described("invitation_make", InvitationRequest, InvitationMade, 201)
    def post(self, request: Request, slug: str) -> Response:
        """Invite a person to a tenant for 72 hours; `path` of its link is shown only now."""
        tenant = self.managed(slug)
        wanted = request_of(InvitationRequest, request.data)
        made, secret = invite(
            actor=actor_of(self.person), tenant=tenant, request=wanted, now=timezone.now()
        )
        return Response({**plain(invitation_row(made)), "path": join_path(secret)}, status=201)


class InvitationOne(MembersView):
    address = "tenants/<slug:slug>/invitations/<uuid:uid>"
    scopes: ClassVar[dict[str, str]] = {"DELETE": WRITE}
    http_method_names = ["delete"]

    @described("invitation_revoke", None, None, 204)
    def delete(self, request: Request, slug: str, uid: UUID) -> Response:  # noqa: ARG002 - DRF's
        """Revoke an open invitation: its link ends."""
        tenant = self.managed(slug)
        now = timezone.now()
        if not revoke_invitation(actor=actor_of(self.person), tenant=tenant, uid=uid, now=now):
            raise not_there()
        return Response(status=204)
