"""People who sign in: list them, create one. A first password is shown once and kept nowhere."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from portal.operate.views.console import actor_of, console, page
from portal.site.forms import request_inputs, typed_request
from tenants.input.errors import InvalidInputError
from tenants.models import User
from tenants.requests import PersonRequest
from tenants.scopes import site_scope
from tenants.selectors.people import people_listed
from tenants.services.people import create_user

SITE_ROLES = tuple(
    (role.value, "none: member of tenants alone" if role == User.SiteRole.NONE else role.label)
    for role in User.SiteRole
)
FIELDS = ("username", "first_name", "last_name", "site_role")
LISTED = 200


@console
def people(request: HttpRequest) -> HttpResponse:
    """Everybody who may sign in, and a form for somebody new."""
    errors: dict[str, str] = {}
    made, password = None, ""
    if request.method == "POST":
        try:
            made, password = create_user(
                actor=actor_of(request), request=typed_request(PersonRequest, request.POST)
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
        "fields": request_inputs(
            PersonRequest, FIELDS, typed, errors, choices={"site_role": SITE_ROLES}
        ),
    }
    return page(request, "people.html", context, key="people", status=422 if errors else 200)
