"""API tokens, made and revoked by their owner, on a page or over REST, and audited.

No record has the secret: the caller shows it once.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, ClassVar
from uuid import UUID

from django.db import transaction
from django.utils.translation import gettext as _
from msgspec import Meta

from tenants.audit import Actor, last_record, write_audit
from tenants.input.errors import FieldErrors
from tenants.input.requests import Input, Request
from tenants.language import gettext_noop
from tenants.models import ApiToken
from tenants.refusals import record_refusal
from tenants.scopes import site_scope
from tenants.tokens import (
    DAYS,
    DAYS_MAX,
    SCOPES_USUAL,
    Scope,
    create_token,
    drop_token,
    scope_is_open,
    token_exists,
)

NAME_MAX = 63  # also in the complaint below
REVOKED = "token.revoked"


def _read_scopes(given: Mapping[str, object], errors: FieldErrors) -> tuple[Scope, ...]:
    wanted = given.get("scopes", SCOPES_USUAL)
    known = tuple(Scope)
    if (
        not isinstance(wanted, list | tuple)
        or not 1 <= len(wanted) <= len(known)
        or any(name not in known for name in wanted)
    ):
        errors.add(
            "scopes",
            _("Choose at least one."),
            _("Allowed: {known}.").format(known=", ".join(known)),
        )
        return ()
    return tuple(map(Scope, wanted))


class TokenRequest(Request, frozen=True, kw_only=True):
    """A token to make."""

    NOUN: ClassVar[str] = "a token"
    NULL_IS_ABSENT: ClassVar[bool] = False

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=NAME_MAX,
            description="Name that shows where the token is used.",
        ),
        Input(complaint=gettext_noop("Give it a name of 1 to 63 printable characters.")),
    ] = "token"
    scopes: Annotated[
        tuple[Scope, ...],
        Meta(min_length=1, description="What the token may be used for."),
        Input(read=_read_scopes),
    ] = SCOPES_USUAL
    days: Annotated[
        int,
        Meta(ge=1, le=DAYS_MAX, description="The token's lifetime in days."),
        Input(complaint=f"Enter a whole number from 1 to {DAYS_MAX}."),
    ] = DAYS


class ScopeRefusedError(Exception):
    """The person requested a scope that their role does not allow; it is recorded."""


def make_token(
    *, actor: Actor, request: TokenRequest, asked: str, now: datetime
) -> tuple[ApiToken, str]:
    """Make a token of the actor; return it with its secret, which is shown only now.

    `asked`: method and URL for the record of a refusal.

    Raises:
        ScopeRefusedError: a scope is not allowed, so no token is made.
        TooManyTokensError: the person has the maximum number.
    """
    for scope in request.scopes:
        if not scope_is_open(actor.user, scope):
            why = f"The scope {scope.value} is for operators."
            record_refusal(actor, asked, why, {"scopes": ", ".join(request.scopes)})
            raise ScopeRefusedError(why)
    with site_scope(), transaction.atomic():
        token, secret = create_token(
            user=actor.user, name=request.name, scopes=request.scopes, days=request.days, now=now
        )
        after = {"name": token.name, "scopes": token.scopes, "days": request.days}
        write_audit(actor, "token.created", _subject(token.uid), after=after)
    return token, secret


def revoke_token(*, actor: Actor, uid: UUID, asked: str) -> bool:
    """Revoke a token of the actor; return False if the actor has no token with this id.

    `asked`: method and URL for the record of a refusal, if the token belongs to another person.
    """
    with site_scope(), transaction.atomic():
        if drop_token(user=actor.user, uid=uid):
            write_audit(actor, REVOKED, _subject(uid))
            return True
    if token_exists(uid):
        record_refusal(actor, asked, "The token belongs to another person.")
    return False


def has_revoked(*, actor: Actor, uid: UUID) -> bool:
    """Return whether the actor owned this token and has already revoked it."""
    with site_scope():
        record = last_record(_subject(uid), [REVOKED])
    return record is not None and record.actor_id == actor.user.pk


def _subject(uid: UUID) -> str:
    return f"token {uid}"
