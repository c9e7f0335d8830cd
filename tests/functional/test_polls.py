"""Test polls of open pages: answered like Django, without Django, and only to their users."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from django.core.asgi import get_asgi_application
from django.db import OperationalError
from django.test import Client
from pytest_django import Settings

from portal.charts.page import LATE, LIVE, PAUSED
from portal.site import board
from portal.site.board import FRESH_S, VISITOR, PollBoard, Reading
from portal.site.context import line_of
from scheduling.engine.clock import wall_now
from scheduling.models import Pool, PoolClock, PoolFence
from scheduling.selectors.pools.lines import PoolFacts, pool_facts
from tenants.models import Membership, Quota, User
from tenants.scopes import site_scope
from tenants.selectors.access import Access
from tests.functional.visitors import Town, town
from tests.tools import eventually
from tests.web_server import Answer, WebServer, web_server

Names = tuple[str, ...]

LINE = "/pools/pool-1/line/"
ELSEWHERE = "/pools/pool-2/line/"
# A poll has no query, so Django answers requests that have this query.
BY_DJANGO = "?plain"
AGES_S = 600.0


class Counted:
    """Django's application, with the paths of its requests."""

    def __init__(self) -> None:
        self._app = get_asgi_application()
        self.asked: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope["path"])
        await self._app(scope, receive, send)


@pytest.fixture
def django() -> Counted:
    return Counted()


@pytest.fixture
def place(committed_db: str) -> Town:
    assert committed_db
    place = town()
    # No line changes by itself, however slow the machine is.
    PoolClock.objects.update(paused=True, pause_reason="maintenance")
    return place


@pytest.fixture
def web(place: Town, django: Counted) -> Iterator[WebServer]:  # noqa: ARG001 - pytest's fixture
    with web_server(django) as server:
        yield server


def cookie(client: Client) -> str:
    return f"evenshare_session={client.cookies['evenshare_session'].value}"


def poll(web: WebServer, client: Client, path: str = LINE, **headers: str) -> Answer:
    return web.ask("GET", path, b"", Cookie=cookie(client), Content_Length="", **headers)


def shown(body: str) -> str:
    """Return a line without the seconds, which depend on the current time."""
    body = re.sub(r' data-(ago|due|etag)="[^"]*"', "", body)
    return re.sub(r"\d+ (s|min)( \d+ s)? ago|now<|next\s+round[^<]*|<svg.*?</svg>", "", body)


class TestPoll:
    def test_uses_django_only_for_the_first_request(
        self, web: WebServer, place: Town, django: Counted, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A slow reading must not be passed to Django.
        monkeypatch.setattr(board, "FRESH_S", AGES_S)
        monkeypatch.setattr(board, "PATIENCE_S", AGES_S)
        first = poll(web, place.owner)
        again = [poll(web, client) for client in (place.owner, place.mate, place.operator)]
        assert django.asked == [LINE]
        for answer in again:
            assert answer.status == 200
            assert shown(answer.body) == shown(first.body)
            own = {"x-request-id", "date", "content-length"}
            assert {name: value for name, value in answer.headers.items() if name not in own} == {
                name: value for name, value in first.headers.items() if name not in own
            }
            assert answer.headers["x-request-id"] != first.headers["x-request-id"]
            assert int(answer.headers["content-length"]) == len(answer.body.encode())

    def test_unchanged_line_returns_304_from_board_and_django(
        self, web: WebServer, place: Town
    ) -> None:
        for accepted in ("", "gzip"):
            for path in (LINE + BY_DJANGO, LINE):
                etag = poll(web, place.owner, path, Accept_Encoding=accepted).headers["etag"]
                for asked in (LINE + BY_DJANGO, LINE):
                    known = poll(web, place.owner, asked, If_None_Match=etag)
                    assert (known.status, known.body) == (304, "")
                    assert known.headers["etag"].removeprefix("W/") == etag.removeprefix("W/")
                    assert known.headers["cache-control"] == "no-cache"

    def test_shows_new_round(self, web: WebServer, place: Town) -> None:
        first = poll(web, place.owner)
        place.play()
        eventually(lambda: 'data-round="1"' in poll(web, place.owner).body)
        etag = first.headers["etag"]
        assert poll(web, place.owner, If_None_Match=etag).status == 200

    def test_is_counted_in_metrics(self, web: WebServer, place: Town) -> None:
        poll(web, place.owner)
        poll(web, place.owner)
        text = web.ask("GET", "/metrics").body
        row = re.search(
            r'evenshare_http_requests_total\{method="GET",'
            r'route="/pools/<slug:name>/line/",status="200"\} (\d+)',
            text,
        )
        assert row is not None
        assert int(row[1]) >= 2

    @pytest.mark.parametrize("name", ["pool-1%00", "%00", "pool 1", "p\u00f6l", "pool-1%0a"])
    def test_invalid_pool_name_is_answered_by_django(
        self, web: WebServer, place: Town, django: Counted, name: str
    ) -> None:
        """PostgreSQL rejects NUL, so one such name would make the reading of all pools fail."""
        poll(web, place.owner)
        answer = poll(web, place.owner, f"/pools/{quote(name, safe='%')}/line/")
        assert answer.status in {400, 404}
        before = len(django.asked)
        eventually(lambda: poll(web, place.owner).status and len(django.asked) == before)

    def test_resumes_unwatched_pool(self, web: WebServer, place: Town) -> None:
        poll(web, place.owner)
        PoolClock.objects.update(paused=True, pause_reason="unwatched", anchor_wall=wall_now())
        eventually(lambda: poll(web, place.owner).status == 200 and not _paused())

    def test_does_not_resume_pool_for_unauthorized_visitor(
        self, web: WebServer, place: Town, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.PRODUCTION = True
        noted: list[str] = []
        monkeypatch.setattr(
            "portal.site.middleware.Looks.note", lambda _, pool: noted.append(pool.name)
        )
        poll(web, place.owner)
        noted.clear()
        for who in (f"evenshare_session={'x' * 32}", cookie(place.outsider)):
            for _ in range(3):
                assert web.ask("GET", LINE, b"", Cookie=who, Content_Length="").status == 404
        # A member of another pool sees that pool's name in the frame of the refusal.
        assert "pool-1" not in noted
        eventually(lambda: poll(web, place.owner).status == 200 and "pool-1" in noted)

    def test_other_requests_are_passed_to_django(
        self, web: WebServer, place: Town, django: Counted
    ) -> None:
        poll(web, place.owner)
        session = cookie(place.owner)
        for method, path, headers in (
            ("GET", LINE + BY_DJANGO, {"Cookie": session}),
            ("HEAD", LINE, {"Cookie": session}),
            ("GET", LINE, {"Cookie": session, "Content_Length": "0"}),
            ("GET", LINE, {"Cookie": session, "Host": "127.0.0.1"}),
            ("GET", LINE, {"Cookie": session, "X_Forwarded_Proto": "https"}),
            ("GET", LINE, {"Cookie": "evenshare_session=short"}),
            ("GET", LINE, {"Cookie": f"evenshare_session={'x' * 32}"}),
            ("GET", ELSEWHERE, {"Cookie": session}),
        ):
            before = len(django.asked)
            web.ask(method, path, b"", **{"Content_Length": "", **headers})
            assert len(django.asked) == before + 1, (method, path, headers)

    def test_is_answered_by_django_if_reading_fails(
        self, web: WebServer, place: Town, django: Counted, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        poll(web, place.owner)

        def away(*_: object) -> Reading:
            raise OperationalError

        monkeypatch.setattr(board, "read", away)
        eventually(lambda: poll(web, place.owner).status and len(django.asked) > 1)
        assert poll(web, place.owner).status == 200


def _paused() -> bool:
    return PoolClock.objects.get(pool__name="pool-1").paused


class TestAccess:
    """On a production site, where visitors see no pool."""

    @pytest.mark.parametrize("end", ["log-out", "deactivated", "password", "role", "quota"])
    def test_ends_soon_after_rights_are_lost(
        self, web: WebServer, place: Town, settings: Settings, end: str
    ) -> None:
        settings.PRODUCTION = True
        assert poll(web, place.mate).status == poll(web, place.mate).status == 200
        bea = User.objects.filter(username="bea")
        if end == "log-out":
            session = cookie(place.mate)
            place.mate.logout()
            eventually(lambda: web.ask("GET", LINE, Cookie=session).status == 404)
            return
        if end == "deactivated":
            bea.update(is_active=False)
        elif end == "password":
            bea.update(password="another")
        elif end == "role":
            Membership.objects.filter(user__in=bea).delete()
        else:
            Quota.objects.filter(tenant=place.tenant).delete()
        eventually(lambda: poll(web, place.mate).status == 404)
        assert poll(web, place.operator).status == 200

    @pytest.mark.parametrize("production", [False, True])
    def test_matches_django_for_every_user_and_pool(
        self, web: WebServer, place: Town, settings: Settings, *, production: bool
    ) -> None:
        """No requester gets another requester's answer, in any order and at the same time."""
        settings.PRODUCTION = production
        people = [place.owner, place.mate, place.neighbour, place.outsider, place.operator]
        cookies = [*map(cookie, people), "", f"evenshare_session={'y' * 32}"]
        paths = [LINE, ELSEWHERE, "/pools/nowhere/line/"]
        asked = [(who, path) for who in cookies for path in paths]
        by_django = {
            one: web.ask("GET", one[1] + BY_DJANGO, Cookie=one[0], Content_Length="")
            for one in asked
        }
        statuses = {answer.status for answer in by_django.values()}
        assert statuses == {200, 404}
        order = asked * 6
        random.Random(7).shuffle(order)  # noqa: S311 - a seeded story
        with ThreadPoolExecutor(4) as threads:
            answers = threads.map(
                lambda one: web.ask("GET", one[1], Cookie=one[0], Content_Length=""), order
            )
        for one, answer in zip(order, answers, strict=True):
            assert answer.status == by_django[one].status, one
            if answer.status == 200:
                assert shown(answer.body) == shown(by_django[one].body), one
                assert answer.headers["etag"] == by_django[one].headers["etag"], one


class TestReading:
    def test_expires_and_covers_only_its_pools_and_sessions(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now)
        reading = Reading(begun=now, done=now, pools={"a": None}, people={VISITOR: Access()})
        assert reading.knows("a", VISITOR, now)
        assert not reading.knows("b", VISITOR, now)
        assert not reading.knows("a", "x", now)
        assert not replace(reading, begun=now - FRESH_S - 0.01).knows("a", VISITOR, now)

    def test_turns_late_without_a_new_reading(
        self, committed_db: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The line is rendered with the wall time that has passed since the reading."""
        assert committed_db
        facts = _facts_of_a_live_pool()
        begun = time.monotonic()
        reading = Reading(
            begun=begun,
            done=begun,
            pools={facts.name: facts},
            tenants={facts.id: frozenset()},
            people={VISITOR: Access()},
        )
        lines = []
        for later_s in (0, 1, 60):
            monkeypatch.setattr(time, "monotonic", lambda s=later_s: begun + s)
            seen = reading.facts(facts.name, VISITOR)
            assert seen is not None
            lines.append(line_of(seen))
        assert [line.state for line in lines] == [LIVE, LIVE, LATE]
        assert lines[0].etag == lines[1].etag != lines[2].etag
        paused = line_of(replace(facts, clock=_paused_clock(facts)))
        assert paused.state == PAUSED
        assert paused.etag not in {line.etag for line in lines}

    def test_respects_limits_of_pools_and_sessions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sizes = []

        def read(pools: Names, sessions: Names, _watched: object, _looks: object) -> Reading:
            sizes.append((len(pools), len(sessions)))
            return nothing_of(pools, sessions)

        monkeypatch.setattr(board, "read", read)
        monkeypatch.setattr(board, "POOLS", 3)
        monkeypatch.setattr(board, "SESSIONS", 5)

        async def story() -> None:
            full = PollBoard()
            polls = [full.facts(f"p{number % 9}", f"s{number}") for number in range(40)]
            assert set(await asyncio.gather(*polls)) == {None}
            # Unknown pools and sessions do not count towards the limits.
            assert full.sizes == (0, 0)

        run_story(story)
        assert max(pools for pools, _ in sizes) == 3
        assert max(sessions for _, sessions in sizes) == 5

    def test_slow_reading_is_used_by_its_waiting_poll(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If the database is slow, Django's view would not be faster."""
        begins: list[float] = []
        now = 1000.0

        def read(pools: Names, sessions: Names, _watched: object, _looks: object) -> Reading:
            nonlocal now
            begins.append(now)
            reading = replace(nothing_of(pools, sessions), begun=now)
            now += 2 * FRESH_S
            return reading

        monkeypatch.setattr(board, "read", read)
        monkeypatch.setattr(Reading, "facts", lambda _, pool, session: (pool, session))
        monkeypatch.setattr(board, "time", SimpleNamespace(monotonic=lambda: now))

        async def story() -> None:
            assert await PollBoard().facts("a", VISITOR) == ("a", VISITOR)  # type: ignore[comparison-overlap]  # stands in for them

        run_story(story)
        assert len(begins) == 1

    def test_failed_reading_is_retried_after_a_gap(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tries = []
        slept = []

        def read(*_: object) -> Reading:
            tries.append(1)
            raise OperationalError

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        monkeypatch.setattr(board, "read", read)
        monkeypatch.setattr(board, "time", SimpleNamespace(monotonic=lambda: 1000.0))
        monkeypatch.setattr("asyncio.sleep", sleep)

        async def story() -> None:
            away = PollBoard()
            for _ in range(3):
                assert await away.facts("a", VISITOR) is None

        run_story(story)
        assert len(tries) == 3
        assert slept == pytest.approx([0.0, board.GAP_S, board.GAP_S])


def nothing_of(pools: Names, sessions: Names) -> Reading:
    """Return a reading without any pool or session."""
    now = time.monotonic()
    return Reading(now, now, dict.fromkeys(pools), {}, dict.fromkeys(sessions))


def run_story(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it in a new thread, because the browser's loop may be running in this one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(story())).result()


def _facts_of_a_live_pool() -> PoolFacts:
    place = town()
    place.play()
    pool = Pool.objects.get(name=place.cluster.pool.name)
    at = wall_now()
    PoolClock.objects.update(anchor_pool=place.cluster.at, anchor_wall=at, paused=False)
    PoolFence.objects.update(last_checked_at=place.cluster.at)
    with site_scope():
        facts = pool_facts(pool.pk)
    assert facts is not None
    # Set the clock to the last round, however long the machine has taken since.
    return replace(facts, wall=at + timedelta(milliseconds=1))


def _paused_clock(facts: PoolFacts) -> PoolClock:
    clock = facts.clock
    return PoolClock(
        pool_id=facts.id,
        anchor_wall=clock.anchor_wall,
        anchor_pool=clock.anchor_pool,
        scale=clock.scale,
        paused=True,
        pause_reason="maintenance",
    )
