"""Sign-in changes: a person's own password, and an operator's deactivation of others."""

from dataclasses import dataclass, field

from django.contrib.auth import SESSION_KEY
from django.contrib.auth.hashers import check_password, make_password
from django.contrib.auth.password_validation import validate_password
from django.contrib.sessions.models import Session
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from tenants.audit import Actor, write_audit
from tenants.input.errors import FieldErrors, invalid
from tenants.language import gettext_noop, number
from tenants.models import ApiToken, User
from tenants.operator_transaction import operation
from tenants.scopes import site_scope

PASSWORD_MAX = 1024
CHANGED_MEANWHILE = gettext_noop("The password was changed meanwhile: sign in with the new one.")


@dataclass(frozen=True, slots=True)
class NewPassword:
    """A new password as typed, with all its characters. It is never shown."""

    new_password: str = field(repr=False)
    new_password_again: str = field(repr=False)
    drop_tokens: bool = False


def check_new_password(person: User, request: NewPassword) -> None:
    """Refuse an invalid new password.

    This comes first, because checking the old password is slower.

    Raises:
        InvalidInputError: on `new_password` or `new_password_again`.
    """
    errors = FieldErrors()
    if len(request.new_password) > PASSWORD_MAX:
        errors.add(
            "new_password",
            _("Enter at most {most} characters.").format(most=number(PASSWORD_MAX)),
        )
    elif "\x00" in request.new_password:
        errors.add("new_password", _("It has a character that log-in forms reject."))
    else:
        try:
            validate_password(request.new_password, person)
        except ValidationError as refused:
            errors.add("new_password", " ".join(refused.messages))
    if request.new_password != request.new_password_again:
        errors.add(
            "new_password_again", _("The two passwords differ: enter the new password twice.")
        )
    errors.raise_any()


def choose_language(person: User, language: str) -> None:
    """Keep the language of a person's pages: a code, such as `de`; empty: the browser's."""
    with site_scope():
        User.objects.filter(pk=person.pk).update(language=language)


def change_password(*, actor: Actor, verified: User, request: NewPassword) -> User:
    """Set a person's new password; return the person with it.

    `verified` is the person as read when their old password was checked. All sessions end, because
    each holds a hash of the old password; the caller may keep its own. Tokens end only if the
    request asks for it.

    Raises:
        InvalidInputError: on `new_password` as `check_new_password`, or it is the old one; on
            `old_password`: it was changed since it was checked.
    """
    check_new_password(verified, request)
    if check_password(request.new_password, verified.password):
        raise invalid("new_password", _("This is the current password: choose another."))
    # Hashing is slow by design, so it runs before the transaction.
    hashed = make_password(request.new_password)
    with site_scope():
        rows = User.objects.filter(pk=verified.pk, password=verified.password, is_active=True)
        if not rows.update(password=hashed):
            raise invalid("old_password", _(CHANGED_MEANWHILE))
        dropped = _drop_tokens(verified) if request.drop_tokens else 0
        after = {"tokens_dropped": dropped}
        subject = f"person {verified.get_username()}"
        write_audit(actor, "person.password_changed", subject, after=after)
    verified.password = hashed
    return verified


def deactivate_person(*, actor: Actor, username: str) -> None:
    """Deactivate a person: their sessions and tokens end with the transaction.

    Jobs and memberships stay. Repeating it changes nothing.

    Raises:
        InvalidInputError: on `username`: no such person, or it is the actor, who could not
            undo it. So the last operator stays active.
        PermissionDenied: the actor may not operate (any more).
    """
    with operation(actor):
        person = _lock_person(actor, username)
        if person.pk == actor.user.pk:
            raise invalid(
                "username", _("You cannot deactivate your own account: ask another operator.")
            )
        if not person.is_active:
            return
        _set_active(actor, person, is_active=False)


def reactivate_person(*, actor: Actor, username: str) -> None:
    """Reactivate a person, with their password and memberships.

    Sessions and tokens that were created during the deactivation are deleted here.

    Raises:
        InvalidInputError: on `username`: no such person.
        PermissionDenied: the actor may not operate (any more).
    """
    with operation(actor):
        person = _lock_person(actor, username)
        if person.is_active:
            return
        _set_active(actor, person, is_active=True)


def _set_active(actor: Actor, person: User, *, is_active: bool) -> None:
    person.is_active = is_active
    person.save(update_fields=["is_active"])
    after = {
        "is_active": is_active,
        "sessions_ended": _end_sessions(person),
        "tokens_dropped": _drop_tokens(person),
    }
    what = "person.reactivated" if is_active else "person.deactivated"
    subject = f"person {person.username}"
    write_audit(actor, what, subject, before={"is_active": not is_active}, after=after)


def _lock_person(actor: Actor, username: str) -> User:
    """Lock a person and all operators, so that two cannot deactivate each other at once."""
    operators = Q(site_role=User.SiteRole.OPERATOR, is_active=True)
    rows = User.objects.select_for_update(no_key=True).filter(operators | Q(username=username))
    locked = {row.pk: row for row in rows.order_by("id")}
    present = locked.get(actor.user.pk)
    if present is None or not present.is_active or not present.is_operator:
        raise PermissionDenied
    person = next((row for row in locked.values() if row.get_username() == username), None)
    if person is None:
        raise invalid("username", _("There is no person with this login name."))
    return person


def _end_sessions(person: User) -> int:
    """Delete a person's sessions, which would be valid again when the account is reactivated."""
    key = str(person.pk)
    rows = Session.objects.filter(expire_date__gt=Now()).iterator()
    theirs = [row.pk for row in rows if row.get_decoded().get(SESSION_KEY) == key]
    return Session.objects.filter(pk__in=theirs).delete()[0]


def _drop_tokens(person: User) -> int:
    return ApiToken.objects.filter(user=person).delete()[0]
