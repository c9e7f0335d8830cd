"""Identities at the site's OpenID Connect provider: sign-in, connection with an account."""

from dataclasses import dataclass

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from tenants.audit import Actor, write_audit
from tenants.input.errors import invalid
from tenants.input.requests import read_request
from tenants.models import User
from tenants.requests import NewcomerRequest
from tenants.scopes import site_scope
from tenants.services.people import login_name_is_taken

NAME_MAX = 150


@dataclass(frozen=True, slots=True)
class ProvenIdentity:
    """An identity that the provider has signed, with names that may change.

    `identity` is the issuer and its subject, with a space between.
    """

    identity: str
    username: str
    first_name: str = ""
    last_name: str = ""


def sign_in(proven: ProvenIdentity, *, links_names: bool, request_id: str) -> User:
    """Return the person with this identity. Create the person at the first sign-in.

    A new person belongs to no tenant. `links_names`: the identity is connected with the account
    that has its name, if that account has no identity yet.

    Raises:
        InvalidInputError: the person is deactivated, or the name is invalid or taken.
    """
    with site_scope():
        user = User.objects.filter(identity=proven.identity).first()
        if user is None:
            user = _first_sign_in(proven, links_names=links_names, request_id=request_id)
        if not user.is_active:
            raise invalid("username", _("This account is deactivated. Ask an operator."))
        return user


def _first_sign_in(proven: ProvenIdentity, *, links_names: bool, request_id: str) -> User:
    names = {
        "username": proven.username,
        "first_name": proven.first_name[:NAME_MAX],
        "last_name": proven.last_name[:NAME_MAX],
    }
    request = read_request(NewcomerRequest, {key: name for key, name in names.items() if name})
    namesake = User.objects.filter(username=request.username, identity=None).first()
    if links_names and namesake is not None:
        _connect(Actor(namesake, request_id), proven)
        return namesake
    if login_name_is_taken(request.username):
        raise invalid(
            "username",
            _(
                "The name {name} is taken. If the account is yours, log in with its password and"
                " connect it on the page of your account."
            ).format(name=request.username),
        )
    user = User(
        username=request.username,
        first_name=request.first_name,
        last_name=request.last_name,
        identity=proven.identity,
    )
    user.set_unusable_password()
    try:
        with transaction.atomic():
            user.save()
    except IntegrityError:
        raise invalid("username", _("Sign in again: the account changed meanwhile.")) from None
    after = {"username": user.username, "site_role": "", "identity": proven.identity}
    actor = Actor(user, request_id)
    write_audit(actor, "person.created", f"person {user.username}", after=after)
    return user


def connect(*, actor: Actor, proven: ProvenIdentity) -> None:
    """Connect the actor's account with an identity, which may replace an earlier one.

    Raises:
        InvalidInputError: the identity belongs to another account.
    """
    with site_scope():
        _connect(actor, proven)


def _connect(actor: Actor, proven: ProvenIdentity) -> None:
    user = User.objects.select_for_update().get(pk=actor.user.pk)
    before, user.identity = user.identity, proven.identity
    if before == proven.identity:
        return
    try:
        with transaction.atomic():
            user.save(update_fields=["identity"])
    except IntegrityError:
        raise invalid("identity", _("This identity belongs to another account.")) from None
    write_audit(
        actor,
        "person.connected",
        f"person {user.username}",
        before={"identity": before or ""},
        after={"identity": proven.identity},
    )


def disconnect(*, actor: Actor) -> None:
    """Remove the identity of the actor's account, which must have a password.

    Raises:
        InvalidInputError: the account would have no way to sign in any more.
    """
    with site_scope():
        user = User.objects.select_for_update().get(pk=actor.user.pk)
        if not user.has_usable_password():
            raise invalid("identity", _("Your account has no password, so it needs this identity."))
        before, user.identity = user.identity, None
        if before is None:
            return
        user.save(update_fields=["identity"])
        write_audit(
            actor,
            "person.disconnected",
            f"person {user.username}",
            before={"identity": before},
        )
