"""Tenants and their members: list, create, add, change a role, remove."""

from collections.abc import Callable

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from portal.common.forms import request_inputs, text, typed_request
from portal.operate.views.console import actor_of, console, no_such_button, page
from scheduling.selectors.pools.lines import all_books
from tenants.input.errors import InvalidInputError
from tenants.models import Membership, Tenant
from tenants.requests import MembershipRequest, TenantRequest
from tenants.scopes import site_scope
from tenants.selectors.people import member_rows
from tenants.selectors.tenants import find_tenant, tenant_sizes
from tenants.services.people import add_member, open_tenant, remove_member, set_member_role

Role = Membership.Role
JOINED = {
    Role.VIEWER: gettext_noop("{person} is now a viewer of {tenant}."),
    Role.MEMBER: gettext_noop("{person} is now a member of {tenant}."),
    Role.MANAGER: gettext_noop("{person} is now a manager of {tenant}."),
}
MEMBER_CHANGES: dict[str, Callable[..., object]] = {"add": add_member, "role": set_member_role}


@console
def tenant_list(request: HttpRequest) -> HttpResponse:
    """Show all tenants, and a form for a new one."""
    errors: dict[str, str] = {}
    if request.method == "POST":
        with site_scope():
            books = all_books()
        try:
            tenant = open_tenant(
                actor=actor_of(request),
                request=typed_request(TenantRequest, request.POST),
                books=books,
            )
        except InvalidInputError as error:
            errors = error.by_field
        else:
            created = _("Created {tenant}. Next: add people and quota.")
            messages.success(request, created.format(tenant=tenant.name))
            return redirect("operate-tenant", tenant.slug)
    with site_scope():
        tenants = tenant_sizes()
    fields = request_inputs(TenantRequest, ("slug", "name", "initials"), request.POST, errors)
    context = {
        "tenants": tenants,
        "fields": fields,
        "lonely": sum(not tenant.managers for tenant in tenants),
    }
    status = 422 if errors else 200
    return page(request, "tenants.html", context, key="tenants", status=status)


@console
def members(request: HttpRequest, slug: str) -> HttpResponse:
    """Show a tenant's members with their roles."""
    with site_scope():
        tenant = find_tenant(slug)
    if tenant is None:
        raise Http404
    errors: dict[str, str] = {}
    if request.method == "POST":
        try:
            messages.success(request, _change(request, tenant))
        except InvalidInputError as error:
            errors = error.by_field
        else:
            return redirect("operate-tenant", slug)
    with site_scope():
        members = member_rows(tenant)
    roles = tuple((role.value, str(role.label)) for role in Role)
    adding = request.POST.get("do") == "add"
    typed = request.POST if adding else {}
    context = {
        "tenant": tenant,
        "members": members,
        "roles": roles,
        "managers": sum(member.role == Role.MANAGER for member in members),
        "trouble": "" if adding else " ".join(errors.values()),
        "fields": request_inputs(
            MembershipRequest,
            ("username", "role"),
            typed,
            errors if adding else {},
            defaults={"role": Role.MEMBER},
            choices={"role": roles},
        ),
    }
    status = 422 if errors else 200
    return page(request, "members.html", context, key="tenants", status=status)


def _change(request: HttpRequest, tenant: Tenant) -> str:
    actor, do = actor_of(request), text(request.POST, "do")
    if do in MEMBER_CHANGES:
        wanted = typed_request(MembershipRequest, request.POST)
        MEMBER_CHANGES[do](actor=actor, tenant=tenant, request=wanted)
        joined = _(JOINED[Role(wanted.role)])
        return joined.format(person=wanted.username, tenant=tenant.name)
    if do == "remove":
        username = text(request.POST, "username")
        remove_member(actor=actor, tenant=tenant, username=username)
        removed = _("Removed {person} from {tenant}.")
        return removed.format(person=username, tenant=tenant.name)
    return no_such_button()
