"""Test the gate before Django, without Django: turns, disconnects, slow bodies, late answers."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any

import pytest

from portal.site import gate as module
from portal.site.gate import REFUSAL, Gate
from portal.site.lanes import LaneChooser, LaneLimits, limits_by_lane

PAGES = LaneLimits(at_once=2, queue=3, wait_s=3600.0, each=4)


class Visit:
    """A request, the client's side of its connection, and its outcome."""

    def __init__(self, gate: Gate, path: str = "/", client: str = "192.0.2.1") -> None:
        self.scope: dict[str, Any] = {
            "type": "http", "method": "POST", "path": path, "headers": [], "client": (client, 1),
        }  # fmt: skip
        self.wire: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.refused: tuple[int, str] | None = None
        self.body = b""
        self.task = asyncio.ensure_future(gate(self.scope, self.wire.get, self._send))

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.refused = message["refused"]
        self.body += message.get("body", b"")

    def sends(self, body: bytes = b"", *, more: bool = False) -> None:
        self.wire.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def leaves(self) -> None:
        self.wire.put_nowait({"type": "http.disconnect"})


class Django:
    """A replacement for Django, which serves admitted requests once the test opens the door."""

    def __init__(self) -> None:
        self.door = asyncio.Event()
        self.inside: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = scope.get(REFUSAL)
        body = (await receive())["body"]
        if refusal is None:
            self.inside.append(scope["client"][0])
            await self.door.wait()
        refused_with = None if refusal is None else (refusal.status, refusal.code)
        await send({"type": "http.response.start", "refused": refused_with})
        await send({"type": "http.response.body", "body": body})


async def settle() -> None:
    """Run the event loop until every task waits for input."""
    for _ in range(50):
        await asyncio.sleep(0)


def opened(**limits: LaneLimits) -> tuple[Gate, Django]:
    django = Django()
    return Gate(django, {**limits_by_lane(), "pages": PAGES, **limits}), django


class TestTurns:
    def test_are_first_come_and_excess_is_refused(self) -> None:
        async def story() -> None:
            gate, django = opened()
            visits = [Visit(gate, client=f"192.0.2.{number}") for number in range(7)]
            for visit in visits:
                visit.sends()
            await settle()
            assert django.inside == ["192.0.2.0", "192.0.2.1"]
            assert [visit.refused for visit in visits[5:]] == [(503, "busy")] * 2
            django.door.set()
            await asyncio.gather(*(visit.task for visit in visits))
            assert django.inside == [f"192.0.2.{number}" for number in range(5)]
            assert gate.lane("pages").waiting == 0

        asyncio.run(story())

    def test_are_limited_per_client(self) -> None:
        async def story() -> None:
            gate, django = opened()
            mine = [Visit(gate) for _ in range(5)]
            other = Visit(gate, client="192.0.2.9")
            for visit in (*mine, other):
                visit.sends()
            await settle()
            assert [visit.refused for visit in mine] == [None] * 4 + [(429, "busy")]
            assert gate.lane("pages").waiting == 3
            django.door.set()
            await asyncio.gather(*(visit.task for visit in (*mine, other)))
            # A client may connect again after it was served.
            again = Visit(gate)
            again.sends()
            await again.task
            assert again.refused is None

        asyncio.run(story())

    def test_are_not_kept_after_disconnect(self) -> None:
        async def story() -> None:
            gate, django = opened()
            visits = [Visit(gate) for _ in range(4)]
            for visit in visits:
                visit.sends()
            await settle()
            visits[2].leaves()
            await settle()
            assert (visits[2].task.done(), gate.lane("pages").waiting) == (True, 1)
            django.door.set()
            await asyncio.gather(*(visit.task for visit in visits))
            assert len(django.inside) == 3

        asyncio.run(story())

    def test_are_refused_after_wait_limit(self) -> None:
        async def story() -> None:
            gate, django = opened(pages=replace(PAGES, wait_s=0.0))
            visits = [Visit(gate) for _ in range(3)]
            for visit in visits:
                visit.sends()
            await visits[2].task
            assert visits[2].refused == (503, "busy")
            django.door.set()
            await asyncio.gather(*(visit.task for visit in visits))
            assert [visit.refused for visit in visits[:2]] == [None, None]

        asyncio.run(story())

    def test_total_matches_database_connections(self) -> None:
        """Under every setting, an admitted request gets a database connection without waiting."""
        from django.test import override_settings

        for pool, hashes in ((13, 2), (6, 2), (20, 5)):
            with override_settings(DATABASE_POOL_SIZE=pool, PASSWORD_HASHES_AT_ONCE=hashes):
                lanes = limits_by_lane()
            asking = ("pages", "logins", "ready", "metrics")
            # The board, which updates open pages, needs one more connection.
            assert sum(lanes[name].at_once for name in asking) + 1 == pool
            assert lanes["logins"].at_once == hashes

    @pytest.mark.parametrize("path", ["/login/", "/api/v1/tokens", "/account/", "/join/"])
    def test_of_logins_has_all_requests_that_hash_passwords(self, path: str) -> None:
        chosen = LaneChooser()
        lanes = [chosen.lane({"method": method, "path": path}) for method in ("POST", "GET")]
        assert lanes == ["logins", "pages"]


class TestBody:
    def test_is_passed_on_unchanged(self) -> None:
        async def story() -> None:
            gate, django = opened()
            django.door.set()
            visit = Visit(gate)
            for part in (b"a", b"", b"bc"):
                visit.sends(part, more=True)
            visit.sends(b"d")
            await visit.task
            assert visit.body == b"abcd"

        asyncio.run(story())

    def test_incomplete_body_takes_no_turn_and_times_out(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def story() -> None:
            gate, django = opened()
            silent, broken = Visit(gate), Visit(gate)
            broken.sends(b"a", more=True)
            broken.leaves()
            await settle()
            assert (django.inside, broken.task.done(), silent.task.done()) == ([], True, False)
            silent.leaves()
            await silent.task
            monkeypatch.setattr(module, "BODY_S", 0.0)
            slow = Visit(gate)
            slow.sends(b"a", more=True)
            await slow.task
            assert slow.refused == (408, "too_slow")

        asyncio.run(story())


class TestLateAnswer:
    def test_gets_503_while_request_keeps_its_turn(self) -> None:
        async def story() -> None:
            ready = LaneLimits(at_once=1, queue=2, wait_s=3600.0, each=3, answer_s=0.0)
            gate, django = opened(ready=ready)
            first, second = Visit(gate, "/readyz"), Visit(gate, "/readyz")
            for visit in (first, second):
                visit.sends()
            await asyncio.gather(first.task, second.task)
            assert [first.refused, second.refused] == [(503, "database_unavailable")] * 2
            await settle()
            assert len(django.inside) == 1
            django.door.set()
            await settle()
            assert gate.lane("ready").waiting == 0

        asyncio.run(story())
