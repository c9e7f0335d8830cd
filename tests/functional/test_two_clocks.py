"""Pages over pools whose clocks are years apart: each instant on its own pool's clock."""

from __future__ import annotations

import html
import re

import pytest

from scheduling.models import Job
from tests.functional.two_clocks import TwoClocks, two_clocks


@pytest.fixture
def there(committed_db: str) -> TwoClocks:
    assert committed_db
    return two_clocks()


def words(page: str) -> str:
    """A page as it is read."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def ages(page: str) -> list[float]:
    """Seconds ago of every relative time of a page's content."""
    return [float(age) for age in re.findall(r'data-ago="(-?\d+)"', page.split("<main", 1)[1])]


YEAR_S = 365 * 86_400


class TestAListOverPools:
    def test_of_jobs_has_each_row_on_its_pools_clock(self, there: TwoClocks) -> None:
        """The rows of a pool in 2017 were "in 919 d" by the clock of another pool."""
        page = there.page("mo", "/t/north/jobs/")
        rows = re.findall(r'<tr id="job-.*?</tr>', page, re.DOTALL)
        assert {job.pool_id for job in Job.objects.filter(tenant__slug="north")} == {
            lab.pool.pk for lab in there.labs
        }
        assert len(rows) == Job.objects.filter(tenant__slug="north").count()
        assert all(0 <= age < 86_400 for age in ages(page)), ages(page)
        assert " in " not in " ".join(words(row) for row in rows)

    @pytest.mark.parametrize(
        ("who", "path"),
        [
            ("mo", "/t/north/"),
            ("mo", "/t/north/?pool=pool-2"),
            ("mo", "/t/north/ledger/"),
            ("mo", "/t/north/ledger/?pool=pool-2"),
            ("mo", "/pools/"),
            ("finn", "/ledger/"),
            ("oda", "/operate/"),
            ("oda", "/operate/people/"),
            ("oda", "/operate/tenants/"),
            ("oda", "/operate/audit/"),
        ],
    )
    def test_says_no_age_of_years(self, there: TwoClocks, who: str, path: str) -> None:
        page = there.page(who, path)
        assert all(abs(age) < YEAR_S for age in ages(page)), ages(page)

    def test_of_a_ledger_has_hours_of_the_pool_that_moved_the_money(self, there: TwoClocks) -> None:
        first = there.page("mo", "/t/north/ledger/?pool=pool-1")
        second = there.page("mo", "/t/north/ledger/?pool=pool-2")
        hour = r'<time datetime="(\d{4})[^>]*title="[^"]*clock ×(\d+)"'
        table = '<div class="tblw" id="t-ledger">'
        assert set(re.findall(hour, first.split(table)[1])) == {("2017", "60")}
        assert {scale for _, scale in re.findall(hour, second.split(table)[1])} == {"1"}


class TestTheConsole:
    def test_says_which_clock_its_dates_are_of(self, there: TwoClocks) -> None:
        for rest in ("quotas", "nodes", "settings", "health", "what-if"):
            page = words(there.page("oda", f"/operate/pools/pool-1/{rest}/"))
            assert "The clock of pool-1 shows 2017-10-20" in page, rest
            assert "60 times as fast as the wall's" in page, rest

    def test_proposes_a_time_of_the_pools_clock_and_no_other(self, there: TwoClocks) -> None:
        """A date of 2026 was proposed for a clock that was in 2017."""
        path = "/operate/pools/pool-1/nodes/"
        page = there.page("oda", path)
        proposed = re.findall(r'id="w-(?:starts|ends)_at"[^>]*value="(\d{4})', page)
        assert proposed == ["2017", "2017"]
        form = {"do": "window", "nodes": "n0000", "starts_at": "soon", "ends_at": "later"}
        refused = there.client("oda").post(path, form)
        assert refused.status_code == 422
        grid = there.client("oda").get("/operate/pools/pool-1/quotas/?since=soon")
        for answer in (refused, grid):
            # What an example or a hint says; the foot and the console's rows are about now.
            said = re.findall(r'class="(?:err|hint)"[^>]*>([^<]*)', answer.content.decode())
            assert said
            assert {year for line in said for year in re.findall(r"\b20\d\d\b", line)} == {"2017"}

    def test_tells_the_age_of_rounds_by_one_clock(self, there: TwoClocks) -> None:
        """The figure said "4 s ago" and the first row of the table "4 min ago", of one round."""
        page = there.page("oda", "/operate/pools/pool-1/health/")
        assert "Ages and durations on this page are of the wall clock" in words(page)
        # The round line is the one that counts seconds of the wall everywhere.
        line = re.search(r'id="round-line".*?data-ago="(\d+)"', page, re.DOTALL)
        assert line is not None
        newest = ages("<main" + page.split('id="t-health"')[1])[0]
        assert abs(newest - int(line[1])) <= 1
