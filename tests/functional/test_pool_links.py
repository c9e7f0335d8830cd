"""Test that pages about one of several pools link to pages of the same pool, with every role."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import parse_qs, urlsplit

import pytest
from django.urls import resolve

from portal.common.pool_switch import TENANT_PAGES
from scheduling.models import Pool
from tests.functional.two_clocks import TwoClocks

# These show other pools on purpose: the menu of pools, a tenant in all its pools, and links that
# clear a list's filter.
ELSEWHERE = re.compile(
    r'(?s)<details class="menu" id="pool-switch">.*?</details>'
    r'|<div class="tblw" id="t-uses">.*?</table>|<form class="filters".*?</form>'
)
TENANT = (
    "/t/north/?pool={}",
    "/t/north/jobs/?pool={}",
    "/t/north/jobs/new/?pool={}",
    "/t/north/sharing/?pool={}",
    "/t/north/profiles/?pool={}",
    "/t/north/ledger/?pool={}",
    "/t/north/ledger/statement/?pool={}",
    "/t/north/ledger/contribution/?pool={}",
    "/t/north/credit/?pool={}",
)
POOL = ("/pools/{}/", "/pools/{}/rounds/", "/pools/{}/rounds/3/", "/pools/{}/prices/")
REFUSED = {("oda", "/t/north/jobs/new/?pool={}")}
# URLs that take `?pool=`.
TAKES = {*TENANT_PAGES.values(), "credit"}


class Links(HTMLParser):
    """Collects the URLs of links."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href") if tag == "a" else None
        if href and href.startswith("/"):
            self.found.append(href)


def dropped(page: str, pool: str) -> list[str]:
    """Return links to a tenant's pages that would show another pool."""
    links = Links(ELSEWHERE.sub("", page)).found
    return [
        link
        for link in links
        if resolve(urlsplit(link).path).url_name in TAKES
        and parse_qs(urlsplit(link).query).keys().isdisjoint({"from"})
        and parse_qs(urlsplit(link).query).get("pool") != [pool]
    ]


class TestPoolPage:
    @pytest.mark.parametrize("who", ["mo", "oda"])
    def test_keeps_pool_in_every_link(self, clocks: TwoClocks, who: str) -> None:
        client, pool = clocks.client(who), clocks.present.pool.name
        found = []
        for path in (*TENANT, *POOL):
            page = client.get(path.format(pool))
            assert page.status_code == (403 if (who, path) in REFUSED else 200), path
            found += [f"{path}: {link}" for link in dropped(page.content.decode(), pool)]
        # A user without a tenant gets a link to the accounts of all books.
        assert [link for link in found if who == "mo" or not link.endswith(": /ledger/")] == []

    def test_links_to_all_pools_without_a_choice(self, clocks: TwoClocks) -> None:
        page = clocks.page("mo", "/t/north/jobs/")
        assert 'href="/t/north/jobs/"' in page
        assert 'href="/t/north/"' in page


class TestSubmitForm:
    def test_preselects_pool_of_the_linking_page(self, clocks: TwoClocks) -> None:
        first, second = (lab.pool.name for lab in clocks.labs)
        # By name the newer pool comes first. Pages without a pool in their URL show the older pool.
        Pool.objects.filter(name=second).update(name="a-pool")
        for path, pool in (
            ("", first),
            ("?pool=a-pool", "a-pool"),
            ("jobs/?pool=a-pool", "a-pool"),
        ):
            page = clocks.page("mo", f"/t/north/{path}")
            (link,) = re.findall(r'href="([^"]*/jobs/new/[^"]*)"', page)
            assert chosen(clocks.page("mo", link)) == pool, path
        assert chosen(clocks.page("mo", "/t/north/jobs/new/")) == first

    def test_is_linked_from_pool_page_for_submitters(self, clocks: TwoClocks) -> None:
        name = clocks.present.pool.name
        link = f"/t/north/jobs/new/?pool={name}"
        assert f'href="{link}"' in clocks.page("mo", f"/pools/{name}/")
        assert "/jobs/new/" not in clocks.page("vera", f"/pools/{name}/")


def chosen(page: str) -> str:
    """Return the selected pool of the form."""
    select = re.search(r'(?s)<select[^>]*name="pool".*?</select>', page)
    assert select
    option = re.search(r"(?s)<option([^>]*selected[^>]*)>([^<]*)", select[0])
    assert option
    return option[2].strip()
