"""Tenants and their members: list, create, add, change a role, remove."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from portal.operate.views.console import actor_of, console, page
from portal.site.forms import Field, request_inputs, text, typed_request
from scheduling.selectors.lines import all_books
from tenants.input.errors import InvalidInputError, invalid
from tenants.models import Membership, Tenant
from tenants.requests import TenantRequest
from tenants.scopes import site_scope
from tenants.selectors.people import members_of
from tenants.selectors.tenants import find_tenant, tenant_sizes
from tenants.services.people import add_member, open_tenant, remove_member, set_member_role

Role = Membership.Role
ROLES = tuple((role.value, role.label) for role in Role)


@console
def tenant_list(request: HttpRequest) -> HttpResponse:
    """All tenants, and a form for a new one."""
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
            messages.success(request, f"Created {tenant.name}. Now add its people and its quota.")
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
    """One tenant's people, with their roles."""
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
        memberships = members_of(tenant)
    adding = request.POST.get("do") == "add"
    typed = request.POST if adding else {}
    context = {
        "tenant": tenant,
        "memberships": memberships,
        "roles": ROLES,
        "managers": sum(membership.role == Role.MANAGER for membership in memberships),
        "trouble": "" if adding else " ".join(errors.values()),
        "fields": [
            Field(
                "username",
                "Login name",
                text(typed, "username"),
                error=errors.get("username", "") if adding else "",
                required=True,
            ),
            Field(
                "role",
                "Role",
                text(typed, "role") or Role.MEMBER,
                kind="select",
                choices=ROLES,
                error=errors.get("role", "") if adding else "",
            ),
        ],
    }
    status = 422 if errors else 200
    return page(request, "members.html", context, key="tenants", status=status)


def _change(request: HttpRequest, tenant: Tenant) -> str:
    """Make the change that a form of the page asks for; return what was done."""
    actor, username = actor_of(request), text(request.POST, "username")
    role, do = text(request.POST, "role"), text(request.POST, "do")
    if do == "add":
        add_member(actor=actor, tenant=tenant, username=username, role=role)
        return f"{username} is a {role} of {tenant.name} now."
    if do == "role":
        set_member_role(actor=actor, tenant=tenant, username=username, role=role)
        return f"{username} is a {role} of {tenant.name} now."
    if do == "remove":
        remove_member(actor=actor, tenant=tenant, username=username)
        return f"{username} is no member of {tenant.name} any more."
    raise invalid("do", "This page has no such button.")
