"""Test pages about pools whose clocks are years apart: each time is on its pool's clock."""

from __future__ import annotations

import html
import re

from django.db.models import Sum

from scheduling.engine.clock import wall_now
from scheduling.models import Job, Lease, Round
from scheduling.selectors.tenants.dashboard import HOLDING
from tenants.models import Quota
from tests.functional.pool_stage import headline
from tests.functional.two_clocks import TwoClocks


def words(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def ages(page: str) -> list[float]:
    """Return all relative times of a page's content, in seconds ago."""
    return [float(age) for age in re.findall(r'data-ago="(-?\d+)"', page.split("<main", 1)[1])]


YEAR_S = 365 * 86_400


class TestPagesOverSeveralPools:
    def test_job_rows_use_the_clock_of_their_pool(self, clocks: TwoClocks) -> None:
        """Regression: the rows of a pool in 2017 were "in 919 d" by the clock of another pool."""
        page = clocks.page("mo", "/t/north/jobs/")
        assert headline(page).endswith(", in all pools.")
        rows = re.findall(r'<tr id="job-.*?</tr>', page, re.DOTALL)
        assert {job.pool_id for job in Job.objects.filter(tenant__slug="north")} == {
            lab.pool.pk for lab in clocks.labs
        }
        assert len(rows) == Job.objects.filter(tenant__slug="north").count()
        assert all(0 <= age < 86_400 for age in ages(page)), ages(page)
        assert " in " not in " ".join(words(row) for row in rows)

    def test_never_show_ages_of_years(self, clocks: TwoClocks) -> None:
        looks = {
            "mo": ("/t/north/", "/t/north/?pool=pool-2", "/t/north/ledger/", "/pools/"),
            "finn": ("/ledger/", "/t/north/ledger/?book=main", "/t/north/ledger/?book=replay"),
            "oda": ("/operate/", "/operate/people/", "/operate/tenants/", "/operate/audit/"),
        }
        for who, paths in looks.items():
            for path in paths:
                shown = ages(clocks.page(who, path))
                assert all(abs(age) < YEAR_S for age in shown), f"{path}: {shown}"

    def test_ledger_hours_use_the_clock_of_their_pool(self, clocks: TwoClocks) -> None:
        first = clocks.page("mo", "/t/north/ledger/?pool=pool-1")
        second = clocks.page("mo", "/t/north/ledger/?pool=pool-2")
        hour = r'<time datetime="(\d{4})[^>]*title="([^"]*)"'
        table = '<div class="tblw" id="t-ledger">'
        before, now = (re.findall(hour, page.split(table)[1]) for page in (first, second))
        assert {(year, title.split("clock ")[-1][1:]) for year, title in before} == {("2017", "60")}
        assert now
        assert "2017" not in {year for year, _ in now}


class TestConsole:
    def test_names_clock_of_its_dates(self, clocks: TwoClocks) -> None:
        for rest in ("quotas", "nodes", "settings", "health", "what-if"):
            page = words(clocks.page("oda", f"/operate/pools/pool-1/{rest}/"))
            assert "The clock of pool-1 shows 2017-10-20" in page, rest
            assert "60 times wall time" in page, rest

    def test_proposes_times_on_clock_of_pool(self, clocks: TwoClocks) -> None:
        """Regression: a date of 2026 was proposed for a clock in 2017."""
        path = "/operate/pools/pool-1/nodes/"
        page = clocks.page("oda", path)
        proposed = re.findall(r'id="w-(?:starts|ends)_at"[^>]*value="(\d{4})', page)
        assert proposed == ["2017", "2017"]
        form = {"do": "window", "nodes": "n0000", "starts_at": "soon", "ends_at": "later"}
        refused = clocks.client("oda").post(path, form)
        assert refused.status_code == 422
        grid = clocks.client("oda").get("/operate/pools/pool-1/quotas/?since=soon")
        for answer in (refused, grid):
            # Examples and hints. The footer and the console's rows use the wall clock.
            said = re.findall(r'class="(?:err|hint|why)"[^>]*>([^<]*)', answer.content.decode())
            assert said
            assert {year for line in said for year in re.findall(r"\b20\d\d\b", line)} == {"2017"}

    def test_shows_round_age_in_wall_time_everywhere(self, clocks: TwoClocks) -> None:
        """Regression: the figure and the table showed different ages of the same round."""
        before = wall_now()
        page = clocks.page("oda", "/operate/pools/pool-1/health/")
        after = wall_now()
        assert "Ages and durations on this page are wall time" in words(page)
        # The round line counts seconds of wall time on every page.
        line = re.search(r'id="round-line".*?<time[^>]*data-ago="(\d+)"', page, re.DOTALL)
        assert line is not None
        newest = ages("<main" + page.split('id="t-health"')[1])[0]
        # The page reads the clock between `before` and `after`, however slow the machine is.
        last = Round.objects.filter(pool=clocks.replayed.pool).latest("number").wall_at
        least, most = (before - last).total_seconds() - 1, (after - last).total_seconds() + 1
        assert least <= newest <= most
        assert least <= int(line[1]) <= most


class TestOverview:
    def test_has_a_row_for_each_pool_of_tenant(self, clocks: TwoClocks) -> None:
        page = clocks.page("mo", "/t/north/")
        for lab in clocks.labs:
            row = words(page.split(f'id="use-{lab.pool.name}"')[1].split("</tr>")[0])
            held = Lease.objects.filter(
                pool=lab.pool, tenant=lab.tenants["north"], state__in=HOLDING
            )
            sums = held.aggregate(own=Sum("own"), borrowed=Sum("borrowed"))
            queued = Job.objects.filter(pool=lab.pool, tenant__slug="north", state="pending")
            assert sums["own"] == 3
            figures = f"3 GPUs {sums['own']} {sums['borrowed']} {queued.count()}"
            assert figures in row, row
        assert 'href="/t/north/?pool=pool-2"' in page

    def test_omits_pool_table_for_a_single_pool(self, clocks: TwoClocks) -> None:
        Quota.objects.filter(pool=clocks.present.pool, tenant__slug="north").delete()
        assert 'id="t-uses"' not in clocks.page("mo", "/t/north/")


# For each case: the user, the page, and the link to the same page of the other pool.
SAME_PAGES = (
    ("mo", "/t/north/", "/t/north/?pool=pool-2"),
    ("mo", "/t/north/jobs/", "/t/north/jobs/?pool=pool-2"),
    (
        "mo",
        "/t/north/jobs/?state=pending&q=a%26b&pool=pool-1&after=3.0.0.1.pool-1",
        "/t/north/jobs/?pool=pool-2&amp;state=pending&amp;q=a%26b",
    ),
    ("mo", "/t/north/jobs/new/", "/t/north/jobs/new/?pool=pool-2"),
    ("mo", "/t/north/ledger/", "/t/north/ledger/?pool=pool-2"),
    ("mo", "/t/north/ledger/statement/", "/t/north/ledger/statement/?pool=pool-2"),
    (
        "finn",
        "/t/north/ledger/statement/?by=month&from=2001-01-01",
        "/t/north/ledger/statement/?pool=pool-2&amp;by=month",
    ),
    ("mo", "/pools/pool-1/starts/?window=week", "/pools/pool-2/starts/?window=week"),
    ("mo", "/pools/pool-1/", "/pools/pool-2/"),
    ("mo", "/pools/pool-1/prices/", "/pools/pool-2/prices/"),
    ("mo", "/pools/pool-1/rounds/", "/pools/pool-2/rounds/"),
    ("mo", "/pools/pool-1/trades/", "/pools/pool-2/trades/"),
    ("mo", "/pools/pool-1/rounds/3/", "/pools/pool-2/rounds/"),
    ("mo", "/account/", "/pools/pool-2/"),
    ("finn", "/ledger/", "/pools/pool-2/"),
    ("oda", "/operate/pools/pool-1/settings/", "/operate/pools/pool-2/settings/"),
    ("oda", "/operate/pools/pool-1/quotas/", "/operate/pools/pool-2/quotas/"),
    ("oda", "/operate/pools/pool-1/what-if/", "/operate/pools/pool-2/what-if/"),
)


class TestPoolSwitch:
    def switch(self, clocks: TwoClocks, who: str, path: str) -> dict[str, str]:
        menu = clocks.page(who, path).split('id="pool-switch"')[1].split("</details>")[0]
        found = re.findall(r'href="([^"]+)"[^>]*>(pool-\d)', menu)
        return {name: href for href, name in found}

    def test_leads_to_same_page_of_other_pool(self, clocks: TwoClocks) -> None:
        for who, path, other in SAME_PAGES:
            choices = self.switch(clocks, who, path)
            assert set(choices) == {"pool-1", "pool-2"}
            assert choices["pool-2"] == other
            line = clocks.page(who, html.unescape(other)).split('id="round-line"')[1]
            assert 'hx-get="/pools/pool-2/line/"' in line.split(">")[0], other

    def test_follows_pool_chosen_in_form(self, clocks: TwoClocks) -> None:
        """Regression: the page showed the round line of a pool other than the chosen one."""
        client = clocks.client("mo")
        form = {"side": "form", "shown_pool": "pool-1", "pool": "pool-2", "gpus": "1"}
        step = client.post("/t/north/jobs/dry-run/", form).content.decode()
        line = step.split('hx-swap-oob="innerHTML:#pool-bar"')[1]
        assert 'hx-get="/pools/pool-2/line/"' in line
        assert 'href="/t/north/jobs/new/?pool=pool-1"' in line
        assert 'name="shown_pool" value="pool-2"' in step
        assert "simulated: no command runs" in step.split('id="note-command"')[1].split("</p>")[0]
        later = client.post("/t/north/jobs/dry-run/", form | {"changed": "gpus"}).content.decode()
        assert 'id="fld-gpu_types"' in later, "its edit of the pool may have no answer"
        form |= {"shown_pool": "pool-2"}
        step = client.post("/t/north/jobs/dry-run/", form | {"changed": "gpus"}).content.decode()
        assert "pool-bar" not in step, "nothing of the frame moves where the pool stays"
        refused = client.post("/t/north/jobs/new/", form | {"act": "submit", "gpus": "0"})
        assert 'hx-get="/pools/pool-2/line/"' in refused.content.decode()

    def test_is_not_part_of_polled_round_line(self, clocks: TwoClocks) -> None:
        assert "pool-switch" not in clocks.page("mo", "/pools/pool-1/line/")

    def test_is_omitted_with_one_visible_pool(self, clocks: TwoClocks) -> None:
        Quota.objects.filter(pool=clocks.present.pool, tenant__slug="north").delete()
        page = clocks.page("mo", "/pools/pool-1/")
        assert "pool-switch" not in page
        assert "pool-2" not in page


class TestPoolList:
    def test_contains_only_visible_pools(self, clocks: TwoClocks) -> None:
        both = clocks.page("mo", "/pools/")
        assert "2017-10-20" in both
        for name in ("pool-1", "pool-2"):
            assert f'href="/pools/{name}/prices/"' in both
        Quota.objects.filter(pool=clocks.present.pool, tenant__slug="north").delete()
        assert "pool-2" not in clocks.page("mo", "/pools/")
        assert "pool-2" in clocks.page("aud", "/pools/")
