"""Test that no foreign page can make a browser change anything, at any URL, with any request."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction
from django.test import Client

from tests.functional.access_table import ACTORS, TABLE, Route
from tests.functional.addresses import UNSAFE, send, session
from tests.functional.matrix_stage import Stage
from tests.functional.turns import TURNS, dealt

# The password or the URL is the only credential here. No session is read or started, so a foreign
# page gains nothing.
OPEN = {
    ("POST", "api/v1/tokens"),
    # Mail programs send it (RFC 8058); the token in its URL is the credential.
    ("POST", "account/notifications/off/<str:token>/"),
}
TOKEN = "c" * 32  # CSRF secrets are 32 letters or digits; a page's form repeats the cookie's
ORIGIN = {"Origin": "http://testserver"}
# Requests with or without the token, and with each origin that a browser may report.
ELSEWHERE = {
    "without a token": (False, {}),
    "from here, without a token": (False, ORIGIN),
    "from elsewhere": (True, {"Origin": "https://evil.example"}),
    "from nowhere": (True, {"Origin": "null"}),
}
# Statuses of users who may not see or use the URL.
REFUSED = (401, 403, 404)


@dataclass(frozen=True)
class Change:
    """A changing request by a user who may make it, if any user may."""

    method: str
    address: str
    route: Route
    actor: str

    def send(self, there: Stage, *, token: bool = False, **headers: str) -> Any:
        """Send it with a session, as a browser does; roll back its changes."""
        client = session(there.sessions.get(self.actor, ""), enforce_csrf_checks=True)
        if token:
            client.cookies[settings.CSRF_COOKIE_NAME] = TOKEN
            headers["X-CSRFToken"] = TOKEN
        with transaction.atomic():
            answer = send(client, self.method, self.address, self.route, there.words, **headers)
            transaction.set_rollback(True)
        return answer

    @property
    def status(self) -> int:
        """Return the table's status; 404 if the method does not exist."""
        row = self.route.methods.get(self.method)
        return 404 if row is None else getattr(row, self.actor)

    def __str__(self) -> str:
        return f"{self.method} /{self.address} as {self.actor}"


def changes() -> list[Change]:
    """Return all changing requests. Requests with missing methods must change nothing either."""
    return [
        Change(method, address, route, actor_of(route, method))
        for (address, route), method in product(TABLE.items(), UNSAFE)
        if (method, address) not in OPEN
    ]


def actor_of(route: Route, method: str) -> str:
    """Return a requester with a session who may use the URL, if any."""
    row = route.methods.get(method)
    signed_in = [actor for actor in ACTORS if actor not in ("nobody", "reader")]
    return next((one for one in signed_in if row and getattr(row, one) not in REFUSED), "operator")


def is_refused(change: Change, answer: Any) -> bool:
    """Return whether the origin was refused; a missing method may answer 405 instead."""
    if change.method not in change.route.methods and answer.status_code in (404, 405):
        return True
    said = answer.content.decode()
    # A refusal over REST has a code; a page has a text.
    return answer.status_code == 403 and ("CSRF" in said or "older than your session" in said)


class TestUnsafeRequests:
    @pytest.mark.parametrize("turn", range(TURNS))
    def test_are_rejected_from_other_origins(self, matrix: Stage, turn: int) -> None:
        wrong, made = [], 0
        for row, change in enumerate(changes()):
            for name in dealt(tuple(ELSEWHERE), row + row // len(UNSAFE), turn):
                token, headers = ELSEWHERE[name]
                answer = change.send(matrix, token=token, **headers)
                if not is_refused(change, answer):
                    wrong.append(f"{change}, {name}: {answer.status_code}")
            # Without the check the request succeeds. Otherwise the refusals would prove nothing.
            status = change.status
            if turn == 0 and status not in REFUSED:
                made += 1
                answer = change.send(matrix, token=True, **ORIGIN)
                if answer.status_code != status:
                    wrong.append(f"{change}, from here: {answer.status_code}, not {status}")
        assert not wrong, "\n".join(wrong)
        assert made > 30 or turn > 0


class TestExpiredForm:
    def test_returns_403_page_with_explanation(self) -> None:
        answer = Client(enforce_csrf_checks=True).post("/login/", {"username": "x"})
        page = answer.content.decode()
        assert answer.status_code == 403
        assert "This form is older than your session." in page
        assert "Nothing was changed." in page
        assert 'class="foot"' in page
        assert answer.headers["X-Request-ID"] in page
