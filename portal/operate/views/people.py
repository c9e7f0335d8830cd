"""User accounts: list, create, deactivate and reactivate.

A first password is shown once and not stored.
"""

from collections.abc import Callable

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from portal.common.forms import request_inputs, text, typed_request
from portal.operate.views.console import actor_of, console, no_such_button, page
from tenants.input.errors import InvalidInputError
from tenants.models import User
from tenants.requests import PersonRequest
from tenants.scopes import site_scope
from tenants.selectors.people import people_listed
from tenants.services.accounts import deactivate_person, reactivate_person
from tenants.services.people import create_user

FIELDS = ("username", "first_name", "last_name", "site_role")
LISTED = 200
# For each button, the service and the success message.
SWITCHES: dict[str, tuple[Callable[..., object], str]] = {
    "deactivate": (
        deactivate_person,
        gettext_noop("{person} is deactivated; sessions and tokens have ended."),
    ),
    "reactivate": (reactivate_person, gettext_noop("{person} is reactivated.")),
}


@console
def people(request: HttpRequest) -> HttpResponse:
    """Show all accounts, active and inactive, and a form for a new one."""
    do = text(request.POST, "do") if request.method == "POST" else ""
    if do:
        return _switched(request, do)
    errors: dict[str, str] = {}
    made, password = None, ""
    if request.method == "POST":
        try:
            made, password = create_user(
                actor=actor_of(request), request=typed_request(PersonRequest, request.POST)
            )
        except InvalidInputError as error:
            errors = error.by_field
    return _people(request, errors, made=made, password=password)


def _switched(request: HttpRequest, do: str) -> HttpResponse:
    """Deactivate or reactivate an account."""
    username = text(request.POST, "username")
    change, done = SWITCHES.get(do, (no_such_button, ""))
    try:
        change(actor=actor_of(request), username=username)
    except InvalidInputError as error:
        return _people(request, {}, trouble=" ".join(error.by_field.values()))
    messages.success(request, _(done).format(person=username))
    return redirect("operate-people")


def _site_roles() -> tuple[tuple[str, str], ...]:
    none = User.SiteRole.NONE
    return tuple(
        (role.value, _("none: only member of tenants") if role == none else str(role.label))
        for role in User.SiteRole
    )


def _people(
    request: HttpRequest,
    errors: dict[str, str],
    *,
    made: User | None = None,
    password: str = "",
    trouble: str = "",
) -> HttpResponse:
    with site_scope():
        listed = people_listed(limit=LISTED)
    typed = request.POST if errors else {}
    context = {
        "listed": listed,
        "trouble": trouble,
        "made": made,
        "password": password,
        "fields": request_inputs(
            PersonRequest, FIELDS, typed, errors, choices={"site_role": _site_roles()}
        ),
    }
    status = 422 if errors or trouble else 200
    return page(request, "people.html", context, key="people", status=status)
