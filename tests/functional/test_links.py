"""Follow every link with every role; test that no menu or link gives its reader a 403 or 404."""

from __future__ import annotations

from collections import Counter, deque
from html.parser import HTMLParser
from urllib.parse import urldefrag, urljoin, urlsplit

import pytest
from django.test import Client
from django.urls import resolve

from tests.functional.two_clocks import PEOPLE, TwoClocks

# The number of links of a kind that are followed, out of hundreds of rounds or jobs. The query is
# part of the kind.
OF_A_KIND = 2
EVERYBODYS = {
    "account/",
    "account/tokens/",
    "api/v1/docs",
    "api/v1/docs/<slug:resource>",
    "pools/",
    "pools/<slug:name>/",
    "pools/<slug:name>/prices/",
    "pools/<slug:name>/rounds/<int:number>/",
    "t/<slug:slug>/ledger/",
    "t/<slug:slug>/ledger/<uuid:transfer>/",
}
JOBS = {"t/<slug:slug>/", "t/<slug:slug>/jobs/", "jobs/<uuid:uid>/"}
SITE = {"operate/", "operate/audit/", "ledger/"}
FINDS = {
    "vera": JOBS,
    "mo": JOBS | {"t/<slug:slug>/jobs/new/"},
    "mag": JOBS | {"t/<slug:slug>/jobs/new/"},
    "finn": SITE,
    "oda": SITE | JOBS,
    "aud": SITE | JOBS,
}


class Links(HTMLParser):
    """Collects the links of a page, without forms."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if tag == "a" and href:
            self.found.append(href)


def links_of(page: str) -> list[str]:
    parser = Links()
    parser.feed(page)
    return parser.found


def kind_of(path: str) -> str:
    """Return the kind of a link: its route and the names in its query."""
    parts = urlsplit(path)
    names = sorted(part.partition("=")[0] for part in parts.query.split("&"))
    return f"{resolve(parts.path).route}?{'&'.join(names)}"


def crawl(client: Client) -> tuple[list[str], set[str]]:
    """Follow every link from the front page; return the refused ones, and the visited routes."""
    seen: Counter[str] = Counter()
    refused: list[str] = []
    todo, known = deque([("/", "the front page")]), {"/"}
    while todo:
        path, source = todo.popleft()
        answer = client.get(path)
        while answer.status_code in (301, 302):
            path = urljoin(path, answer["Location"])
            answer = client.get(path)
        if answer.status_code >= 400:
            refused.append(f"{source} leads to {path}: {answer.status_code}")
        if answer.status_code >= 400 or "text/html" not in answer["Content-Type"]:
            continue
        for link in links_of(answer.content.decode()):
            target, _ = urldefrag(urljoin(path, link))
            if urlsplit(target).netloc or not target.startswith("/") or target in known:
                continue
            known.add(target)
            kind = kind_of(target)
            seen[kind] += 1
            if seen[kind] <= OF_A_KIND:
                todo.append((target, path))
    return refused, {kind.partition("?")[0] for kind in seen}


class TestLinks:
    @pytest.mark.parametrize("who", PEOPLE)
    def test_lead_each_role_to_its_pages_without_refusals(
        self, clocks: TwoClocks, who: str
    ) -> None:
        refused, found = crawl(clocks.client(who))
        assert not refused, "\n".join(refused)
        wanted = EVERYBODYS | FINDS[who]
        assert wanted <= found, f"{who} does not find {wanted - found}"
