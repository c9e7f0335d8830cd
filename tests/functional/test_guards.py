"""Test the checks that every request passes first."""

from __future__ import annotations

import pytest
from django.db import OperationalError
from django.test import Client

from portal.front import views as front

pytestmark = pytest.mark.django_db


class TestUrlWithNul:
    @pytest.mark.parametrize("address", ["/?pool=%00", "/login/?next=%00", "/t/a%00/", "/x%00"])
    def test_returns_400(self, client: Client, address: str) -> None:
        assert client.get(address).status_code == 400


class TestUnavailableDatabase:
    def test_returns_503_with_retry_after(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(*_: object, **__: object) -> None:
            raise OperationalError("the connection is closed")

        monkeypatch.setattr(front, "render", away)
        response = client.get("/")
        assert (response.status_code, response["Retry-After"]) == (503, "5")
        assert b"The database does not answer" in response.content


class TestSignedInPages:
    def test_are_not_cached(self, client: Client) -> None:
        client.cookies["evenshare_session"] = "x"
        assert client.get("/")["Cache-Control"] == "private, no-store"
