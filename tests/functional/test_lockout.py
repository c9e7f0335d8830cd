"""Test the lockout after wrong passwords, with separate limits by pair, client and account."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from django.test import Client

from tenants.addresses import client_prefix
from tenants.lockout import LIMITS
from tenants.models import LoginAttempt, User

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery"
HOME = "2001:db8:1:2:aaaa::1"
NEIGHBOUR = "2001:db8:1:3::1"


class Case(NamedTuple):
    """Wrong passwords as (number, user, address), then a sign-in, and whether it is locked out."""

    before: list[tuple[int, str, str]]
    who: str
    address: str
    locked: bool


CASES: dict[str, Case] = {
    "nothing before": Case([], "ada", HOME, locked=False),
    "a pair just below": Case([(LIMITS.pair - 1, "ada", HOME)], "ada", HOME, locked=False),
    "a pair": Case([(LIMITS.pair, "ada", HOME)], "ada", HOME, locked=True),
    "the same pair by a neighbour in the /64": Case(
        [(5, "ada", "2001:db8:1:2::1"), (5, "ada", "2001:db8:1:2:ffff:ffff:ffff:ffff")],
        "ada", HOME, locked=True,
    ),
    "another /64": Case([(LIMITS.pair, "ada", NEIGHBOUR)], "ada", HOME, locked=False),
    "another account": Case([(LIMITS.pair, "bob", HOME)], "ada", HOME, locked=False),
    "an IPv4 address written as IPv6": Case(
        [(LIMITS.pair, "ada", "::ffff:192.0.2.7")], "ada", "192.0.2.7", locked=True
    ),
    "another IPv4 address": Case([(LIMITS.pair, "ada", "192.0.2.8")], "ada", "192.0.2.7",
                                 locked=False),
    "a client that tries names": Case(
        [(1, f"name-{number}", f"2001:db8:1:2::{number:x}") for number in range(LIMITS.client)],
        "ada", HOME, locked=True,
    ),
    "a client just below": Case(
        [(1, f"name-{number}", HOME) for number in range(LIMITS.client - 1)],
        "ada", HOME, locked=False,
    ),
    "an account that is tried from everywhere": Case(
        [(1, "ada", f"192.0.2.{number}") for number in range(LIMITS.account)],
        "ada", HOME, locked=True,
    ),
    "an account just below": Case(
        [(1, "ada", f"192.0.2.{number}") for number in range(LIMITS.account - 1)],
        "ada", HOME, locked=False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_correct_password_succeeds_unless_locked_out(case: Case, client: Client) -> None:
    User.objects.create_user("ada", password=PASSWORD)
    attempts = [
        LoginAttempt(username=who, address=client_prefix(address))
        for count, who, address in case.before
        for _ in range(count)
    ]
    LoginAttempt.objects.bulk_create(attempts)
    known = {"username": case.who, "password": PASSWORD}
    answer = client.post("/login/", known, REMOTE_ADDR=case.address)
    assert answer.status_code == (429 if case.locked else 302)
    assert ("_auth_user_id" in client.session) is not case.locked
    if case.locked:
        assert b"Try again in 15 minutes" in answer.content
        assert answer.headers["Retry-After"] == "900"
        # Refused attempts do not count; otherwise a lockout would never end.
        assert LoginAttempt.objects.count() == len(attempts)
    else:
        # The right password clears only this client's attempts at this account.
        pair = {"username": case.who, "address": client_prefix(case.address)}
        assert not LoginAttempt.objects.filter(**pair).exists()
        own = sum(vars_of(one) == pair for one in attempts)
        assert LoginAttempt.objects.count() == len(attempts) - own


def vars_of(attempt: LoginAttempt) -> dict[str, str]:
    return {"username": attempt.username, "address": attempt.address}


@pytest.mark.parametrize(
    ("address", "prefix"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("", ""),
        ("no address\x00", "no address"),
        ("x" * 80, "x" * 45),
        ("192.0.2.1, 10.0.0.1", "192.0.2.1, 10.0.0.1"),
    ],
)
def test_client_prefix_groups_addresses_of_one_client(address: str, prefix: str) -> None:
    assert client_prefix(address) == prefix
