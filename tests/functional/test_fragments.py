"""Test the fragments that a live page fetches after a round: each live part, once."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from portal.site.fragments import BEGIN, END, etag_of_fragment
from scheduling.models import PoolClock
from tests.functional.visitors import Town, town
from tests.stages import staged

PATHS = ("/pools/pool-1/", "/t/north/", "/t/north/ledger/", "/pools/pool-1/prices/")


def fetched(place: Town, path: str, etag: str = "") -> Any:
    headers = {"HX-Request": "true", "HX-Target": "live"}
    return place.owner.get(path, headers=headers | {"If-None-Match": etag})


def played_town() -> Town:
    place = town()
    place.play()
    # The clock is paused, so that content changes only by rounds.
    PoolClock.objects.update(paused=True, pause_reason="maintenance")
    return place


place = staged(played_town)


class TestLivePage:
    @pytest.mark.parametrize("path", PATHS)
    def test_refresh_returns_only_the_live_part(self, place: Town, path: str) -> None:
        page = place.owner.get(path).content.decode()
        part = fetched(place, path).content.decode()
        begin = BEGIN.search(page)
        assert begin is not None
        assert part.startswith('<div id="live"')
        assert part.rstrip().endswith("</div>")
        assert part.count("<div") == part.count("</div>")
        assert len(part) < len(page)
        for word in ("<html", "<footer", 'aria-label="Main"', END):
            assert word not in part

    def test_unchanged_page_returns_304(self, place: Town) -> None:
        first = fetched(place, "/t/north/ledger/")
        again = fetched(place, "/t/north/ledger/", first.headers["ETag"])
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["ETag"] == first.headers["ETag"]

    def test_refresh_returns_changes_after_a_round(self, place: Town) -> None:
        first = fetched(place, "/pools/pool-1/")
        place.submit(gpus=2)
        place.play()
        again = fetched(place, "/pools/pool-1/", first.headers["ETag"])
        assert again.status_code == 200
        assert again.headers["ETag"] != first.headers["ETag"]

    def test_etag_of_another_user_grants_no_access(self, place: Town) -> None:
        """A user who sends another user's ETag still gets the page for their own account."""
        etag = fetched(place, "/t/north/").headers["ETag"]
        headers = {"HX-Request": "true", "HX-Target": "live", "If-None-Match": etag}
        assert place.neighbour.get("/t/south/", headers=headers).status_code == 200
        assert place.neighbour.get("/t/north/", headers=headers).status_code == 404

    def test_other_requests_receive_the_whole_page(self, place: Town) -> None:
        for headers in ({}, {"HX-Request": "true"}, {"HX-Target": "round-line"}):
            page = place.owner.get("/t/north/", headers={**headers, "Accept-Encoding": "gzip"})
            assert b"<html" in gzip.decompress(page.content)


class TestFragmentEtag:
    def test_ignores_running_counters_and_csrf_token(self) -> None:
        row = '<time datetime="{0}" data-ago="{1}" data-scale="60">{1} s ago</time><b>{2}</b>'
        token = '<input type="hidden" name="csrfmiddlewaretoken" value="{}">'
        shown = row.format("2030", 3, "x") + token.format("abc")
        assert etag_of_fragment(shown) == etag_of_fragment(
            row.format("2030", 9, "x") + token.format("xyz")
        )
        for other in (row.format("2031", 3, "x"), row.format("2030", 3, "y")):
            assert etag_of_fragment(shown) != etag_of_fragment(other + token.format("abc"))
