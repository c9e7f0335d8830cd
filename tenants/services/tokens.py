"""One's own API tokens, made and revoked on a page: audited, where a token never is shown."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction

from tenants.audit import Actor, write_audit
from tenants.input.errors import FieldErrors, invalid
from tenants.models import ApiToken
from tenants.scopes import site_scope
from tenants.tokens import (
    DAYS,
    DAYS_MAX,
    PER_PERSON,
    SCOPES_USUAL,
    Scope,
    TooManyTokensError,
    create_token,
    drop_token,
    scope_is_open,
)

NAME_MAX = 63


@dataclass(frozen=True, slots=True)
class TokenDraft:
    """What a form says of a new token; `days` as it was typed."""

    name: str = ""
    days: str = str(DAYS)
    scopes: tuple[str, ...] = tuple(scope.value for scope in SCOPES_USUAL)


def make_own_token(*, actor: Actor, draft: TokenDraft, now: datetime) -> tuple[ApiToken, str]:
    """Make a token of the actor's; return it with its secret, which is shown this once.

    Raises:
        InvalidInputError: by the draft's fields, or on `name` where there are too many already.
    """
    scopes, days = _read(actor, draft)
    try:
        with site_scope(), transaction.atomic():
            token, secret = create_token(
                user=actor.user, name=draft.name, scopes=scopes, days=days, now=now
            )
            after = {"name": token.name, "scopes": token.scopes, "days": days}
            write_audit(actor, "token.created", f"token {token.uid}", after=after)
    except TooManyTokensError:
        raise invalid("name", f"You have {PER_PERSON} tokens; revoke one first.") from None
    return token, secret


def revoke_own_token(*, actor: Actor, uid: UUID) -> bool:
    """Drop a token of the actor's; False where they have none of this id."""
    with site_scope(), transaction.atomic():
        if not drop_token(user=actor.user, uid=uid):
            return False
        write_audit(actor, "token.revoked", f"token {uid}")
    return True


def _read(actor: Actor, draft: TokenDraft) -> tuple[list[Scope], int]:
    errors = FieldErrors()
    if not 1 <= len(draft.name) <= NAME_MAX or not draft.name.isprintable():
        errors.add("name", f"Give it a name of 1 to {NAME_MAX} printable characters.")
    known = {scope.value: scope for scope in Scope}
    if not draft.scopes or any(name not in known for name in draft.scopes):
        errors.add("scopes", "Choose at least one of these.")
    elif any(not scope_is_open(actor.user, known[name]) for name in draft.scopes):
        errors.add("scopes", "The scope operate is for operators.")
    days = int(draft.days) if draft.days.isdecimal() and len(draft.days) < 4 else 0
    if not 1 <= days <= DAYS_MAX:
        errors.add("days", f"Write a whole number from 1 to {DAYS_MAX}.")
    errors.raise_any()
    return [known[name] for name in draft.scopes], days
