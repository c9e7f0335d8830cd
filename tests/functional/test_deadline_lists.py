"""Jobs with deadlines in lists, on the overview, and on the pool's page."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from evenshare_core.policies import registry
from scheduling.models import Job, Pool
from scheduling.selectors.deadlines.texts import cause_text
from tests.functional.pool_stage import Stage
from tests.functional.pool_stage import stage as pool_stage
from tests.functional.queue_stages import text
from tests.functional.visitors import Town, reads, town
from tests.toy_policy.deadlines import POLICY

pytestmark = pytest.mark.usefixtures("committed_db")
LIST, OVERVIEW = "/t/north/jobs/", "/t/north/"
SETTINGS = {"full": "beta", "pseudonyms": "tenant 2", "own": ""}


@pytest.fixture(autouse=True)
def policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.POLICIES, POLICY.name, POLICY)


@pytest.fixture
def place() -> Town:
    there = town()
    Pool.objects.filter(pk=there.cluster.pool.pk).update(policy=POLICY.name)
    there.cluster.pool.refresh_from_db()
    there.play()
    return there


def due(lab: Any, tenant: str, *, within_s: int, gpus: int = 1, name: str = "") -> Job:
    made: Job = lab.submit(
        tenant, gpus, 600, job_class="strict_slo", estimate_s=600,
        deadline_at=lab.at + timedelta(seconds=within_s),
    )  # fmt: skip
    if name:
        Job.objects.filter(pk=made.pk).update(name=name)
        made.refresh_from_db()
    return made


def planned_and_refused(place: Town) -> tuple[Job, Job]:
    """Submit a job that runs, and one that is queued because it needs all GPUs."""
    jobs = (
        due(place.cluster, "north", within_s=3000, name="in-time"),
        due(place.cluster, "north", within_s=60, gpus=8, name="too-late"),
    )
    place.play()
    return jobs


def row(page: str, name: str) -> str:
    """Return the text of a job's row in a table."""
    (found,) = [one for one in re.findall(r"<tr.*?</tr>", page, re.DOTALL) if f">{name}<" in one]
    return " ".join(re.sub(r"<[^>]+>", " ", found).split())


class TestJobList:
    def test_shows_deadline_state_and_due_time(self, place: Town) -> None:
        planned, refused = planned_and_refused(place)
        plain = place.cluster.submit("north", 1, 601)
        Job.objects.filter(pk=plain.pk).update(name="plain")
        page = place.owner.get(LIST).content.decode()
        assert planned.deadline_at is not None
        assert re.search(r"planned \d\d:\d\d UTC", row(page, planned.name))
        assert (
            f"{planned.deadline_at:%H:%M}" in page.split(f">{planned.name}<")[1].split("</tr>")[0]
        )
        assert re.search(r"refused \d\d:\d\d UTC", row(page, refused.name))
        assert "refused" not in row(page, "plain")
        queued = place.owner.get(f"{LIST}?state=pending").content.decode()
        assert re.search(r"refused \d\d:\d\d UTC", row(queued, refused.name))

    def test_omits_column_without_deadlines(self, place: Town) -> None:
        place.cluster.submit("north", 1, 600)
        assert "Deadline" not in text(place.owner.get(LIST))

    def test_query_count_does_not_grow_with_deadlines(self, place: Town) -> None:
        planned_and_refused(place)
        few = len(reads(place.owner, LIST))
        for _ in range(5):
            due(place.cluster, "north", within_s=3000)
        place.play()
        assert len(reads(place.owner, LIST)) == few


class TestOverview:
    def test_lists_deadlines_earliest_first(self, place: Town) -> None:
        planned, refused = planned_and_refused(place)
        shown = text(place.owner.get(OVERVIEW))
        assert "2 jobs have deadlines: 1 planned, 1 refused" in shown
        table = shown[shown.index("2 jobs have deadlines") :]
        assert table.index(refused.name) < table.index(planned.name)

    def test_omits_table_without_deadlines(self, place: Town) -> None:
        assert 'id="deadlines"' not in place.owner.get(OVERVIEW).content.decode()


@pytest.fixture
def there() -> Stage:
    """Return a stage with planned jobs of alpha and beta; other tenants cannot see beta's name."""
    made = pool_stage(policy="fifo")
    Pool.objects.filter(pk=made.lab.pool.pk).update(policy=POLICY.name)
    made.lab.pool.refresh_from_db()
    due(made.lab, "alpha", within_s=4000, name="mine")
    due(made.lab, "beta", within_s=3000, name="secret-of-beta")
    made.lab.round(after_s=10)
    return made


def planned(page: str) -> str:
    """Return the text of the pool page's table of plans; "" if there is no table."""
    match = re.search(r'<section[^>]*id="planned">(.*?)</section>', page, re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", match[1]).split()) if match else ""


class TestPoolPage:
    @pytest.mark.parametrize("setting", SETTINGS)
    def test_jobs_of_others_follow_visibility_of_pool(self, there: Stage, setting: str) -> None:
        there.see(setting)
        page = there.page("owner", there.url())
        shown = planned(page)
        assert "mine" in shown
        assert "secret-of-beta" not in page
        count = "1 job with a deadline is" if setting == "own" else "2 jobs with deadlines are"
        assert f"{count} planned" in shown
        assert SETTINGS[setting] in shown
        # The deadline of another tenant's job is hidden; the planned GPUs are shown.
        assert shown.count("planned due") == 1

    def test_operator_sees_every_job(self, there: Stage) -> None:
        shown = planned(there.page("operator", there.url()))
        assert "secret-of-beta" in shown
        assert shown.count("planned due") == 2

    def test_omits_table_without_deadlines(self, there: Stage) -> None:
        Job.objects.update(deadline_at=None, job_class="best_effort")
        assert planned(there.page("owner", there.url())) == ""


class TestCauseText:
    def test_keeps_text_of_custom_policy(self) -> None:
        assert cause_text("it waits for GPUs") == "it waits for GPUs"


class TestSubmitForm:
    def test_opens_deadline_group_if_policy_uses_deadlines(self, place: Town) -> None:
        new = f"/t/north/jobs/new/?pool={place.cluster.pool.name}"
        page = " ".join(place.owner.get(new).content.decode().split())
        assert '<details class="more" id="group-deadlines" open>' in page
        assert '<details class="more" id="group-resources" >' in page
        assert '<option value="soft_slo" >soft: fewer points after its deadline' in page
        Pool.objects.update(policy="fifo")
        page = " ".join(place.owner.get(new).content.decode().split())
        assert '<details class="more" id="group-deadlines" >' in page

    def test_keeps_unknown_class_and_opens_its_group(self, place: Town) -> None:
        Pool.objects.update(policy="fifo")
        yaml = f"pool: {place.cluster.pool.name}\ngpus: 1\njob_class: odd\n"
        sent = {"side": "yaml", "yaml": yaml}
        answer = place.owner.post("/t/north/jobs/new/", sent).content.decode()
        page = " ".join(answer.split())
        assert '<option value="odd" selected>odd' in page
        assert '<details class="more" id="group-deadlines" open>' in page
