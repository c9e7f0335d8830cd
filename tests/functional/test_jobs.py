"""Test the job list and the job page: audience, content and paging."""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.conf import LazySettings

from billing.selectors.usage import job_charges
from billing.tasks import meter
from evenshare_core.domain.reasons import EndReason, Reason
from scheduling.engine.executors.base import Report
from scheduling.engine.executors.virtual import VirtualExecutor
from scheduling.models import Intent, Job, Lease, Pool, PoolClock, VirtualWork
from scheduling.selectors.jobs import tenant_jobs as read
from scheduling.selectors.jobs.reasons import why
from tests.functional.page_text import sentences
from tests.functional.pool_stage import headline
from tests.functional.visitors import Town, reads, town
from tests.stages import staged

LIST = "/t/north/jobs/"


@pytest.mark.django_db
class TestVisibility:
    def test_members_and_operators_can_see_jobs(self) -> None:
        place = town()
        job = f"/jobs/{place.submit().uid}/"
        for client in (place.owner, place.mate, place.operator):
            assert client.get(LIST).status_code == 200
            assert client.get(job).status_code == 200

    def test_returns_same_404_for_foreign_and_unknown_jobs(self) -> None:
        place = town()
        job = f"/jobs/{place.submit().uid}/"
        # Stop the clock, so that seconds in the page's header do not change between two pages.
        PoolClock.objects.update(paused=True)
        for client in (place.neighbour, place.outsider):
            assert client.get(LIST).status_code == 404
            theirs, nothing = client.get(job), client.get(f"/jobs/{uuid.uuid4()}/")
            assert theirs.status_code == nothing.status_code == 404
            assert _plain(theirs.content) == _plain(nothing.content)
        for page in (LIST, job):
            assert place.nobody.get(page).headers["Location"] == f"/login/?next={page}"


def _plain(page: bytes) -> bytes:
    """Remove a form's token and the page's own URL and id, which differ in each page."""
    page = re.sub(rb'name="(csrfmiddlewaretoken|next)" value="[^"]+"', b"", page)
    return re.sub(rb"\b[0-9a-f]{32}\b", b"", page)


@pytest.mark.django_db
class TestJobList:
    def test_pages_by_key_and_shows_each_job_once(self) -> None:
        place = town()
        made = [place.submit().pk for _ in range(7)]
        place.submit(tenant="south")
        seen, before = [], None
        while True:
            page = read.jobs_page(place.tenant.pk, read.JobFilter(before=before), limit=3)
            seen += [row.job.uid for row in page.rows]
            before = page.next_before
            if before is None:
                break
            place.submit()  # a new job must not move rows to another page
        uids = dict(Job.objects.values_list("pk", "uid"))
        assert seen == [uids[pk] for pk in reversed(made)]

    def test_heading_counts_filtered_jobs(self) -> None:
        place = town()
        for _ in range(3):
            place.submit()
        done = place.submit()
        Job.objects.filter(pk=done.pk).update(state=Job.State.SUCCEEDED, name="odd")
        asked = {
            "": "0 jobs run and 3 are queued.",
            "state=pending": "3 jobs: queued.",
            "state=succeeded": "1 job: done.",
            "state=failed": "No match: failed.",
            "q=none": "No match: with “none” in the name.",
            "q=odd": "1 job: with “odd” in the name.",
            f"state=pending&pool={place.cluster.pool.name}": "3 jobs: queued, in"
            f" {place.cluster.pool.name}.",
        }
        for query, said in asked.items():
            assert headline(place.owner.get(f"/t/north/jobs/?{query}").content.decode()) == said

    def test_filters_by_state_and_name(self) -> None:
        place = town()
        place.submit(1)
        Job.objects.filter(pk=place.submit(2).pk).update(state=Job.State.SUCCEEDED)
        names = {
            query: [row["job"].name for row in place.owner.get(f"{LIST}{query}").context["rows"]]
            for query in ("", "?state=pending", "?state=succeeded", "?q=NORTH-2", "?state=odd")
        }
        for words, same in {"Queued waiting": "pending", "DONE Succeeded": "succeeded"}.items():
            for word in words.split():
                rows = place.owner.get(f"{LIST}?state={word}").context["rows"]
                assert [row["job"].name for row in rows] == names[f"?state={same}"], word
        for known, query in ((False, "odd"), (True, "queued")):
            page = place.owner.get(f"{LIST}?state={query}").content.decode()
            assert ("Unknown state" in page) is not known
        assert names == {
            "": ["north-2", "north-1"],
            "?state=pending": ["north-1"],
            "?state=succeeded": ["north-2"],
            "?q=NORTH-2": ["north-2"],
            "?state=odd": ["north-2", "north-1"],
        }

    @pytest.mark.parametrize("query", ["before=x", "before=" + "9" * 30, "q=%25_", "pool="])
    def test_accepts_any_query_string(self, query: str) -> None:
        assert town().owner.get(f"{LIST}?{query}").status_code == 200

    def test_empty_list_distinguishes_no_jobs_from_no_matches(self) -> None:
        place = town()
        assert b"has no jobs yet" in place.owner.get(LIST).content
        assert b"No matching jobs" in place.owner.get(f"{LIST}?q=zzz").content

    def test_query_count_does_not_grow_with_jobs(self) -> None:
        place = town()
        place.submit()
        few = len(reads(place.owner, LIST))
        for _ in range(30):
            place.submit()
        assert len(reads(place.owner, LIST)) == few <= 18


def played_town() -> Town:
    """Create a town in which north holds the pool with two jobs, and its third job waits."""
    place = town()
    for gpus in (4, 4, 4):
        place.submit(gpus, duration_s=2000)
    place.play(2)
    return place


busy = staged(played_town)


def text_of(place: Town, job: Job) -> str:
    page = place.owner.get(f"/jobs/{job.uid}/")
    assert page.status_code == 200
    return page.content.decode()


class TestJobPage:
    def test_shows_where_it_runs_and_until_when(self, busy: Town) -> None:
        job = Job.objects.filter(state=Job.State.RUNNING).earliest("id")
        page = text_of(busy, job)
        assert "Running on " in page
        until = r"until\s+<time [^>]*wall time[^>]*>00:15</time>\s+"
        assert re.search(until + r"unless it is preempted\.", page)
        Pool.objects.update(policy="ltgf")
        assert re.search(until + r"at least\.", text_of(busy, job))
        assert "This lease" in page
        assert "First lease" in page

    def test_shows_contradiction_with_engine_once(
        self, busy: Town, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = Job.objects.filter(state=Job.State.RUNNING).earliest("id")
        honest = VirtualExecutor.list
        said = "it ended at 1970-01-01 00:00:01 UTC; the engine: it runs"

        def contradicted(self: VirtualExecutor, pool_id: int, at_us: int) -> list[Report]:
            return [replace(one, contradiction=said) for one in honest(self, pool_id, at_us)]

        monkeypatch.setattr(VirtualExecutor, "list", contradicted)
        busy.play(2)
        text = re.sub("<[^>]+>", "", text_of(busy, job))
        assert text.count(f"the job&#x27;s files report: {said}.") == 1

    def test_shows_starting_until_process_runs(self, busy: Town) -> None:
        job = Job.objects.filter(state=Job.State.RUNNING).earliest("id")
        job.leases.update(state="launching", started_at=None)
        page = text_of(busy, job)
        assert "Starting on " in page
        assert "Running on " not in page

    def test_shows_wait_reason_of_last_round(self, busy: Town) -> None:
        job = Job.objects.get(state=Job.State.PENDING)
        page = text_of(busy, job)
        # a fixed duration would differ from the page's running counters
        assert "Queued for " not in page
        assert re.search(r"Queued\s+<time [^>]*data-ago=", page)
        assert why(job.reason_code).text in page
        assert '<a href="/pools/pool-1/rounds/2/">round 2</a>' in page

    @pytest.mark.parametrize("reason", [Reason.NO_FREE_GPUS, Reason.QUOTA_LIMIT, Reason.BUDGET])
    def test_timeline_labels_wait_with_its_reason(self, busy: Town, reason: Reason) -> None:
        job = Job.objects.filter(state=Job.State.PENDING)
        # The wait has ended, so the page gets the reason from the job's row.
        job.update(state=Job.State.CANCELLED, ended_at=busy.cluster.at, reason_code=reason)
        page = text_of(busy, Job.objects.get(state=Job.State.CANCELLED))
        assert f">{why(reason.value).text} 20 s</text>" in page
        assert "no node fits" not in page

    def test_shows_preemption_and_cost_of_terms(self, busy: Town) -> None:
        for _ in range(3):
            busy.play(2, every_s=450)
            meter()
        ended = Lease.objects.filter(end_reason=EndReason.NOT_RENEWED).earliest("id")
        page = text_of(busy, ended.job)
        assert "Preempted:" in page
        assert "All closed terms" in page

    def test_preemption_hides_jobs_and_people_of_others(self, committed_db: str) -> None:
        assert committed_db
        place = town()
        loser = place.submit(8, 90_000)
        place.play(1)
        winner = place.submit(4, 90_000, tenant="south")
        Job.objects.filter(pk=winner.pk).update(name="secret-of-south")
        place.play(2, every_s=900)
        page = place.owner.get(f"/jobs/{loser.uid}/").content.decode()
        story = " ".join(page.split("Event log")[1].split("</ul>")[0].split())
        assert "Preempted:</b> at lease end, for jobs with a higher priority" in story
        assert "It was queued again at once" in story
        assert "A simulated job loses no work" in story
        assert re.search(r"/rounds/\d+/", story)
        why = place.owner.get(f"/api/v1/jobs/{loser.uid}/why").content.decode()
        for said in (page, why):
            assert "secret-of-south" not in said
            assert "cem" not in said

    def test_shows_move_separately_from_preemption(self, busy: Town) -> None:
        """If a round ends a job's lease and grants another one to it at once, the job is moved."""
        for _ in range(3):
            busy.play(2, every_s=450)
        ended = Lease.objects.filter(end_reason=EndReason.NOT_RENEWED).earliest("id")
        then = Lease.objects.get(job=ended.job, number=ended.number + 1)
        assert "Preempted" in text_of(busy, ended.job)
        asked = ended.job.events.filter(lease=ended, kind__in=("stop_asked", "ended"))
        by = asked.order_by("id")[0].round
        assert by is not None
        Lease.objects.filter(pk=then.pk).update(granted_round=by)
        page = busy.owner.get(f"/jobs/{ended.job.uid}/")
        cuts = Lease.objects.filter(job=ended.job, end_reason=EndReason.NOT_RENEWED).count()
        assert (page.context["spent"].moved, page.context["spent"].preempted) == (1, cuts - 1)
        assert "Moved away:" in page.content.decode()

    @pytest.mark.parametrize(
        ("terms", "said"),
        [
            ({"own": 3, "borrowed": 1, "price": 0},
             "3 of its 4 GPUs within quota, 1 borrowed. The price of this term is <b>0</b>:"),
            ({"own": 0, "borrowed": 4, "price": 0},
             "All its 4 GPUs are borrowed. The price of this term is <b>0</b>:"),
            ({"own": 0, "borrowed": 4, "price": "0.5"},
             "All its 4 GPUs are borrowed. A borrowed GPU-hour costs <b>0.5000</b> credits."),
            ({"own": 4, "borrowed": 0, "price": 0}, "All 4 GPUs within quota, free of charge."),
        ],
    )  # fmt: skip
    def test_shows_borrowed_gpus_and_price(
        self, busy: Town, terms: dict[str, Any], said: str
    ) -> None:
        job = Job.objects.filter(state=Job.State.RUNNING).earliest("id")
        job.leases.update(**terms)
        assert said in " ".join(text_of(busy, job).split())

    def test_is_in_the_language_of_its_reader(self, busy: Town, settings: LazySettings) -> None:
        settings.LANGUAGES = [("en", "English"), ("de", "Deutsch")]
        job = Job.objects.filter(state=Job.State.RUNNING).earliest("id")
        answer = busy.owner.get(f"/jobs/{job.uid}/", headers={"Accept-Language": "de"})
        shown = sentences(answer.content.decode())
        assert re.search(r"bis \d\d:\d\d ?, sofern er nicht verdrängt wird", shown)
        assert "Alle 4 GPUs im Kontingent, kostenlos." in shown

    def test_uses_singular_for_one_gpu(self, busy: Town) -> None:
        job = Job.objects.filter(state=Job.State.RUNNING).earliest("id")
        Job.objects.filter(pk=job.pk).update(gpus=1)
        for terms, said in (
            ({"own": 1, "borrowed": 0}, "Its GPU is within quota, free of charge."),
            ({"own": 0, "borrowed": 1}, "Its GPU is borrowed."),
        ):
            job.leases.update(gpus=1, **terms)
            page = " ".join(text_of(busy, job).split())
            assert said in page
            assert "lease 1, term 1: total" in page
            assert "gang" not in page

    def test_explains_lost_process(self, busy: Town) -> None:
        job = Job.objects.filter(state=Job.State.RUNNING).earliest("id")
        never = Job.objects.filter(state=Job.State.RUNNING).latest("id")
        Lease.objects.filter(job=never).update(state="launching", started_at=None)
        VirtualWork.objects.filter(job__in=[job, never]).update(token="")
        busy.play(1)
        lost = " ".join(text_of(busy, job).split())
        assert "Process lost:</b> its supervisor or its node failed, or its cluster" in lost
        assert "It had held its GPUs for" in lost
        assert Lease.objects.get(job=never, number=1).end_reason == EndReason.LOST
        unseen = text_of(busy, never)
        assert "Lost:</b> its start was never reported; see its log." in unseen
        assert "nothing of it ran" not in unseen

    def test_loss_and_withdrawn_grant_are_not_preemptions(self, busy: Town) -> None:
        job = Job.objects.filter(state=Job.State.RUNNING).earliest("id")
        never = Job.objects.filter(state=Job.State.RUNNING).latest("id")
        # It appears that the node stopped answering before the program started.
        withdrawn = {"state": Lease.State.STOPPING, "end_reason": EndReason.DRAINED}
        Lease.objects.filter(job=never).update(started_at=None, **withdrawn)
        VirtualWork.objects.filter(job__in=[job, never]).update(token="")
        busy.play(1)
        lost, unseen = (" ".join(text_of(busy, one).split()) for one in (job, never))
        assert "Its process was lost once." in lost
        assert re.search(r">lost( [\d:]+)?</text>", lost)
        assert "Grant withdrawn:</b> its node was drained, down or in maintenance." in unseen
        assert "its node is being drained" not in unseen
        assert "was lost once" not in unseen
        for page in (lost, unseen):
            assert "Preempted" not in page
            assert ">preempted" not in page

    def test_shows_start_delay_and_its_cause(self, busy: Town) -> None:
        job = Job.objects.filter(state=Job.State.RUNNING).earliest("id")
        lease = job.leases.get()
        grant = "Granted n"
        assert grant not in text_of(busy, job)
        begun = lease.granted_at + timedelta(seconds=3)
        rows = job.leases
        rows.update(started_at=begun)
        page = text_of(busy, job)
        assert "and its program started 3 s later." in page
        assert "jobs before it" not in page
        rows.update(started_at=lease.granted_at + timedelta(milliseconds=200))
        assert "and its program started at once." in text_of(busy, job)
        rows.update(started_at=None, state=Lease.State.LAUNCHING)
        page = text_of(busy, job)
        assert "and its program has not started yet." in page
        assert "jobs before it" not in page
        # The job was launched later than granted, because other jobs still held its GPUs.
        Intent.objects.filter(lease=lease).update(at=begun)
        rows.update(started_at=begun, state=Lease.State.RUNNING)
        assert "started 3 s later, when the jobs before it had stopped." in text_of(busy, job)
        rows.update(started_at=None, state=Lease.State.WAITING)
        assert "and starts once the jobs before it have stopped." in text_of(busy, job)

    def test_charges_sum_to_total(self, busy: Town) -> None:
        busy.play(6, every_s=450)
        meter()
        for job in Job.objects.all():
            page = busy.owner.get(f"/jobs/{job.uid}/")
            rows = [*page.context["charges"], *page.context["earlier"]]
            assert sum(row.charge for row in rows) == page.context["charged"]
            assert sum(row.own_gpu_h for row in rows) == page.context["own_total"]
            exact = sum((term.charge for term in job_charges(job.pk)), Decimal(0))
            assert abs(page.context["charged"] - exact) <= Decimal("0.00005")

    def test_shows_how_it_ended(self, busy: Town) -> None:
        busy.play(8, every_s=900)
        job = Job.objects.filter(state=Job.State.SUCCEEDED).earliest("id")
        page = text_of(busy, job)
        assert "Done after " in page
        assert "Finished." in page
        assert 'hx-get="/jobs/' not in page  # an ended job's page does not refresh


class TestReasons:
    @pytest.mark.parametrize("reason", list(Reason))
    def test_every_reason_has_text_and_sentence(self, reason: Reason) -> None:
        bare = why(reason.value)
        assert bare.text
        assert bare.sentence
        assert "{" not in bare.sentence + bare.next_step
        full = why(reason.value, {"needed": 8, "spendable_micro": 1_500_000, "own_rho": None})
        assert "{" not in full.sentence + full.next_step

    def test_show_numbers_at_start_of_round(self) -> None:
        """The numbers include leases that the round renewed later, so current ones differ."""
        numbers = {"needed": 4, "free": 34, "largest_hole": 2}
        for reason in (Reason.FRAGMENTED, Reason.NO_FREE_GPUS):
            told = why(reason.value, numbers)
            assert "at the start of the round" in told.sentence.casefold()
            assert not re.search(r"\d", told.next_step)
        asked = why(Reason.NO_FREE_GPUS.value, numbers, now=True)
        assert "34 are free now" in asked.sentence

    def test_format_large_numbers_with_separators(self) -> None:
        large = why(Reason.TOO_LARGE.value, {"needed": 100_000, "capacity": 2_490})
        assert "It needs 100,000 GPUs; 2,490 were schedulable" in large.sentence

    def test_omit_served_rho_if_it_is_higher(self) -> None:
        told = why("lease_turn", {"needed": 4, "own_rho": 2.12, "served_rho": 2.86})
        assert "2.12" in told.sentence
        assert "2.86" not in told.sentence
        assert "did not fit" in told.sentence

    def test_unknown_reason_shows_its_code(self) -> None:
        assert why("brand_new").text == "brand new"
