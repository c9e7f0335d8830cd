"""People who sign in: list them, create one. A first password is shown once and kept nowhere."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from portal.operate.views.console import actor_of, console, page
from portal.site.forms import Field, text
from tenants.input.errors import InvalidInputError
from tenants.models import User
from tenants.scopes import site_scope
from tenants.selectors.people import people_listed
from tenants.services.people import create_user

SITE_ROLES = tuple(
    (role.value, "none: member of tenants alone" if role == User.SiteRole.NONE else role.label)
    for role in User.SiteRole
)
LISTED = 200


@console
def people(request: HttpRequest) -> HttpResponse:
    """Everybody who may sign in, and a form for somebody new."""
    errors: dict[str, str] = {}
    made, password = None, ""
    if request.method == "POST":
        try:
            made, password = create_user(
                actor=actor_of(request),
                username=text(request.POST, "username"),
                first_name=text(request.POST, "first_name"),
                last_name=text(request.POST, "last_name"),
                site_role=text(request.POST, "site_role"),
            )
        except InvalidInputError as error:
            errors = error.by_field
    with site_scope():
        users, count = people_listed(limit=LISTED)
    typed = request.POST if errors else {}
    context = {
        "users": users,
        "count": count,
        "left_out": count - len(users),
        "made": made,
        "password": password,
        "fields": [
            Field(
                "username",
                "Login name",
                text(typed, "username"),
                error=errors.get("username", ""),
                required=True,
            ),
            Field("first_name", "First name", text(typed, "first_name")),
            Field("last_name", "Last name", text(typed, "last_name")),
            Field(
                "site_role",
                "Role for the site",
                text(typed, "site_role"),
                kind="select",
                hint="Operators change everything here; finance and auditors read it.",
                choices=SITE_ROLES,
                error=errors.get("site_role", ""),
            ),
        ],
    }
    return page(request, "people.html", context, key="people", status=422 if errors else 200)
