"""Test that pages show instants in the viewer's zone, and that records and programs get UTC."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import Client

from portal.charts.figures import utc
from portal.charts.zones import COOKIE, local_text
from portal.site.fragments import etag_of_fragment
from scheduling.engine.clock import wall_now
from scheduling.models import Job, Lease, LeaseEvent, PoolClock
from tenants.models import IdleOffer, QuotaChangeRequest
from tests.functional.access_table import TABLE
from tests.functional.addresses import fill, is_api, said, template_of
from tests.functional.matrix_stage import Stage

# No time of day is the same in this zone and in UTC.
KOLKATA = ZoneInfo("Asia/Kolkata")
TIME = re.compile(r'<time datetime="([^"]+)" title="([^"]*)"([^>]*)>([^<]*)</time>')
# The headings of this table are hours, UTC, as its first heading says.
HOURS = re.compile(r'<table class="compact timetable">.*?</table>', re.DOTALL)
# Pages that have local times of day.
MAIN = {
    "jobs/<uuid:uid>/",
    "jobs/<uuid:uid>/files/",
    "pools/<slug:name>/history/",
    "pools/<slug:name>/rounds/",
    "pools/<slug:name>/rounds/<int:number>/",
    "pools/<slug:name>/trades/<int:number>/",
    "t/<slug:slug>/members/",
    "t/<slug:slug>/sharing/",
    "account/tokens/",
    "operate/audit/",
    "operate/pools/<slug:name>/what-if/",
}
RECORDS = {"api/v1/entries", "api/v1/jobs/<uuid:uid>", "api/v1/prices", "api/v1/operate/audit"}
FILES = {"t/<slug:slug>/ledger/statement.csv", "pools/<slug:name>/prices.csv"}
STATEMENT = "t/<slug:slug>/ledger/statement/"


@pytest.fixture
def there(matrix: Stage) -> Stage:
    """Return a site whose pools run in real time."""
    wall = wall_now()
    PoolClock.objects.update(scale=1, paused=False, anchor_pool=wall, anchor_wall=wall)
    return matrix


def looks(*, api: bool) -> Iterator[tuple[str, str]]:
    for address, route in TABLE.items():
        if "GET" in route.methods and is_api(address) == api:
            yield address, template_of(address, route)


def in_kolkata(client: Client) -> Client:
    client.cookies[COOKIE] = KOLKATA.key
    return client


def mistakes(page: str) -> Iterator[str]:
    """Yield the times of a page's content that do not follow the rule of docs/look.md."""
    content = HOURS.sub("", page.split("<main", 1)[1])
    times = TIME.findall(content)
    if len(times) != content.count("<time"):
        yield "a time without the attributes of the tags"
    for iso, title, more, text in times:
        at = datetime.fromisoformat(iso)
        local = at.astimezone(KOLKATA)
        full = f"{local:%Y-%m-%d %H:%M:%S}"
        allowed = {f"{at:%H:%M} UTC", f"{at:%H:%M:%S} UTC", f"{local:%H:%M}", f"{local:%H:%M:%S}"}
        is_text = text in {*allowed, full, local_text(at, datetime.now(UTC), KOLKATA)}
        is_age = "data-ago=" in more and full in title
        if not (is_text or is_age) or f"{at:%Y-%m-%d %H:%M:%S} UTC" not in title:
            yield f"{text} of {iso} under {title}"


class TestPages:
    def test_show_local_time_with_utc_on_hover(self, there: Stage) -> None:
        client = in_kolkata(there.client("operator", api=False))
        wrong: dict[str, list[str]] = {}
        local: set[str] = set()
        for address, path in looks(api=False):
            answer = client.get(fill(path, there.words))
            if answer.status_code != 200 or not answer["Content-Type"].startswith("text/html"):
                continue
            page = said(answer)
            if "<main" not in page:
                continue
            assert "Cookie" in answer["Vary"]
            wrong[address] = list(mistakes(page))
            if re.search(r">[^<>]*\d\d:\d\d(:\d\d)?</time>", page):
                local.add(address)
        assert {address: found for address, found in wrong.items() if found} == {}
        assert local >= MAIN, MAIN - local


class TestSentences:
    def test_show_local_time_with_utc_on_hover(self, there: Stage) -> None:
        lab = there.lab
        at = lab.at + timedelta(hours=1)
        IdleOffer.objects.update(revoked_at=at)
        QuotaChangeRequest.objects.update(until=at)
        held = lab.submit("canary-lab", 1, 60, not_before=at, eligible_at=at)
        Job.objects.filter(pk=held.pk).update(reason_code="not_before")
        lease = Lease.objects.filter(job__uid=there.words["job"])[0]
        LeaseEvent.objects.create(
            pool=lab.pool, number=10**6, kind="contradicted", at=at, round=1, lease=lease,
            job=lease.job, tenant=lease.tenant,
            data={"said": f"no start; the engine: it started at {utc(at)}"},
        )  # fmt: skip
        client = in_kolkata(there.client("owner", api=False))
        for url in (
            f"/t/canary-lab/sharing/?pool={lab.pool.name}",
            f"/t/canary-lab/quota/?pool={lab.pool.name}",
            f"/jobs/{held.uid}/",
            f"/jobs/{there.words['job']}/",
        ):
            page = said(client.get(url))
            assert not list(mistakes(page)), url
            shown = re.sub(r"<[^>]*>", "", page.split("<main", 1)[1])
            assert f"{at.astimezone(KOLKATA):%Y-%m-%d %H:%M:%S}" in shown, url
            assert utc(at) not in shown, url


class TestRecords:
    @pytest.mark.parametrize("api", [True, False])
    def test_are_the_same_in_every_zone(self, there: Stage, api: bool) -> None:
        plain = there.client("operator", api=api)
        local = in_kolkata(there.client("operator", api=api))
        same = set()
        for address, path in looks(api=api):
            if api or address.endswith(".csv"):
                url = fill(path, there.words)
                before, zoned, after = (body(one, url) for one in (plain, local, plain))
                # Some answers contain the present time.
                if before == after:
                    assert zoned == before, address
                    same.add(address)
        assert same >= (RECORDS if api else FILES), same

    def test_statement_is_the_same_in_every_zone(self, there: Stage) -> None:
        path = fill(template_of(STATEMENT, TABLE[STATEMENT]), there.words)
        plain = there.client("operator", api=False)
        local = in_kolkata(there.client("operator", api=False))
        # The bar above counts the seconds until the next round.
        first, second = (body(one, path).decode().split("<main")[1] for one in (plain, local))
        assert "2030-01-01" in first
        assert etag_of_fragment(first) == etag_of_fragment(second)


def body(client: Client, url: str) -> bytes:
    answer: Any = client.get(url)
    return b"".join(answer.streaming_content) if answer.streaming else answer.content
