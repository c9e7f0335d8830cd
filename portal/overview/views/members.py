"""A tenant's members and invitations; managers change them."""

from collections.abc import Callable
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from portal.common.access import access, signed_in, tenant_or_404
from portal.common.forms import request_inputs, text, typed_request
from portal.site.request_id import request_id_of
from tenants.audit import Actor
from tenants.input.errors import InvalidInputError, invalid
from tenants.models import Membership, Tenant, User
from tenants.permissions import Action, may_in_tenant
from tenants.refusals import record_refusal
from tenants.requests import InvitationRequest, MembershipRequest
from tenants.scopes import site_scope
from tenants.selectors.people import invitation_rows, member_rows
from tenants.services.invitations import invite, join_path, revoke_invitation
from tenants.services.people import remove_member, set_member_role

Role = Membership.Role


@signed_in
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def members(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Show a tenant's members; managers also get its invitations and the forms."""
    tenant = tenant_or_404(request, slug)
    errors: dict[str, str] = {}
    link = ""
    if request.method == "POST":
        try:
            link = _change(request, tenant)
        except PermissionDenied:
            record_refusal(
                _actor(request), f"POST {request.path}", "The role does not allow it.", request.POST
            )
            raise
        except InvalidInputError as error:
            errors = error.by_field
        else:
            if not link:
                return redirect("front") if _has_left(request) else redirect("members", slug)
    may = may_in_tenant(access(request), Action.MANAGE_MEMBERS, tenant.pk)
    with site_scope():
        rows = member_rows(tenant)
        invitations = invitation_rows(tenant, timezone.now()) if may else []
    roles = tuple((role.value, str(role.label)) for role in Role)
    inviting = text(request.POST, "do") == "invite" and not link
    context = {
        "tenant": tenant,
        "nav_key": "members",
        "members": rows,
        "invitations": [(row, Role(row.role).label) for row in invitations],
        "may_manage": may,
        "own_name": _actor(request).user.get_username(),
        "roles": roles,
        "link": request.build_absolute_uri(link) if link else "",
        "trouble": "" if inviting else " ".join(errors.values()),
        "fields": request_inputs(
            InvitationRequest,
            ("username", "role", "note"),
            request.POST if inviting else {},
            errors if inviting else {},
            defaults={"role": Role.MEMBER},
            choices={"role": roles},
        ),
    }
    return render(request, "overview/members.html", context, status=422 if errors else 200)


def _change(request: HttpRequest, tenant: Tenant) -> str:
    """Make the form's change; return the path of a new invitation's link, else an empty text."""
    return _ACTS.get(text(request.POST, "do"), _unknown)(request, tenant)


def _invite(request: HttpRequest, tenant: Tenant) -> str:
    wanted = typed_request(InvitationRequest, request.POST)
    _invitation, secret = invite(
        actor=_actor(request), tenant=tenant, request=wanted, now=timezone.now()
    )
    return join_path(secret)


def _revoke(request: HttpRequest, tenant: Tenant) -> str:
    try:
        uid = UUID(text(request.POST, "id"))
    except ValueError:
        return _unknown(request, tenant)
    revoke_invitation(actor=_actor(request), tenant=tenant, uid=uid, now=timezone.now())
    messages.success(request, _("Invitation revoked: its link no longer works."))
    return ""


def _set_role(request: HttpRequest, tenant: Tenant) -> str:
    wanted = typed_request(MembershipRequest, request.POST)
    set_member_role(actor=_actor(request), tenant=tenant, request=wanted)
    said = _("{username} now has the role {role}.")
    role = Role(wanted.role).label
    messages.success(request, said.format(username=wanted.username, role=role))
    return ""


def _remove(request: HttpRequest, tenant: Tenant) -> str:
    username = text(request.POST, "username")
    remove_member(actor=_actor(request), tenant=tenant, username=username)
    said = _("Removed {username} from {tenant}.")
    messages.success(request, said.format(username=username, tenant=tenant.name))
    return ""


def _unknown(request: HttpRequest, tenant: Tenant) -> str:
    if not may_in_tenant(access(request), Action.MANAGE_MEMBERS, tenant.pk):
        raise PermissionDenied
    raise invalid("do", _("Unknown action."))


_ACTS: dict[str, Callable[[HttpRequest, Tenant], str]] = {
    "invite": _invite,
    "revoke": _revoke,
    "role": _set_role,
    "remove": _remove,
}


def _has_left(request: HttpRequest) -> bool:
    own_name = _actor(request).user.get_username()
    return (text(request.POST, "do"), text(request.POST, "username")) == ("remove", own_name)


def _actor(request: HttpRequest) -> Actor:
    assert isinstance(request.user, User)  # noqa: S101 - `signed_in` has seen to it
    return Actor(request.user, request_id_of(request))
