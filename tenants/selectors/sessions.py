"""Queries that find the people of many sessions at once. Read-only.

The rules are the same as in `django.contrib.auth.get_user`. The session has not ended, its backend
is configured, its person is active, and their password is unchanged since the sign-in.
"""

from collections.abc import Collection

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.core import signing
from django.db.models.functions import Now
from django.utils.crypto import constant_time_compare

from tenants.models import User
from tenants.selectors.access import Access, accesses_of


def accesses_of_sessions(keys: Collection[str]) -> dict[str, Access]:
    """Return the signed-in person of each of these sessions; others are left out. Three queries."""
    rows = Session.objects.filter(session_key__in=list(keys), expire_date__gt=Now())
    sign_ins = {row.session_key: sign_in for row in rows if (sign_in := _sign_in(row)) is not None}
    people = User.objects.in_bulk({user_id for user_id, _ in sign_ins.values()})
    accesses = accesses_of([person for person in people.values() if person.is_active])
    return {
        key: accesses[user_id]
        for key, (user_id, auth_hash) in sign_ins.items()
        if user_id in accesses
        and constant_time_compare(auth_hash, people[user_id].get_session_auth_hash())
    }


def _sign_in(row: Session) -> tuple[int, str] | None:
    """Return a session's user and auth hash, or None if it has no sign-in of ours.

    It does not use Django, which logs a warning for each session that was signed with another key.
    """
    store = SessionStore()
    try:
        data = signing.loads(row.session_data, salt=store.key_salt, serializer=store.serializer)
    except signing.BadSignature:
        return None
    user_id, auth_hash = data.get(SESSION_KEY), data.get(HASH_SESSION_KEY)
    if data.get(BACKEND_SESSION_KEY) not in settings.AUTHENTICATION_BACKENDS:
        return None
    if not str(user_id).isdecimal() or not isinstance(auth_hash, str):
        return None
    return int(user_id), auth_hash
