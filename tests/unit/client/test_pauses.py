"""Test the pauses between the attempts of a request."""

from __future__ import annotations

from typing import Any

import pytest

from evenshare.cli import api
from evenshare.cli.api import Transport
from evenshare.cli.config import Server
from evenshare.errors import ApiError, TooManyRequestsError, refusal


def pauses_of(monkeypatch: pytest.MonkeyPatch, status: int, **problem: Any) -> list[float]:
    """Return the pauses of a request that is always refused."""
    monkeypatch.setattr(api, "PAUSES_S", (1.0, 4.0, 16.0))
    pauses: list[float] = []

    def refuse(*_: object) -> None:
        raise refusal(status, problem)

    monkeypatch.setattr(Transport, "_send", refuse)
    with pytest.raises(ApiError):
        Transport(Server("http://x", None), pause=pauses.append).get("/pools")
    return pauses


class TestPauses:
    def test_grow_and_are_random(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first, again = (pauses_of(monkeypatch, 503) for _ in range(2))
        for pauses in (first, again):
            assert [0.5, 2, 8] <= pauses == sorted(pauses) <= [1.5, 6, 24]
        assert first != again

    def test_are_at_least_what_the_server_asks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pauses = pauses_of(monkeypatch, 429, retry_after_s=7)
        assert len(pauses) == 3
        assert min(pauses) >= 7

    @pytest.mark.parametrize(("status", "after"), [(429, 60), (400, 0), (404, 0), (409, 0)])
    def test_end_with_lasting_refusals(
        self, status: int, after: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert pauses_of(monkeypatch, status, retry_after_s=after) == []

    def test_classes_follow_from_status(self) -> None:
        assert type(refusal(429, {})) is TooManyRequestsError
        assert type(refusal(500, {})) is ApiError
