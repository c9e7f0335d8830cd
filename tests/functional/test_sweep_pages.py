"""Test pages of sweeps: submission, the job list, a sweep, and what a job waits for."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from scheduling.models import Job, Sweep
from tests.functional.visitors import Town, town

NEW = "/t/north/jobs/new/"
FORM = {"side": "form", "gpus": "1", "act": "submit", "name": "train"}


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Town:
    request.getfixturevalue("db")
    return town()


def send(place: Town, **fields: str) -> Any:
    sent = {**FORM, "pool": place.cluster.pool.name, **fields}
    return place.owner.post(NEW, sent)


def page(place: Town, path: str) -> str:
    answer = place.owner.get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


class TestSubmission:
    def test_by_form_makes_sweep_and_shows_it(self, place: Town) -> None:
        answer = send(place, array="0-3%2", matrix="lr=0.1,0.01\n", command="t {{ lr }}")
        sweep = Sweep.objects.get()
        assert answer["Location"] == f"/sweeps/{sweep.uid}/"
        assert (sweep.jobs.count(), sweep.at_once, sweep.jobs.filter(holds=[]).count()) == (8, 2, 2)
        shown = page(place, answer["Location"])
        assert "0 of 8 jobs have ended" in shown
        assert "At most 2 jobs at once" in shown
        assert 'data-label="lr"' in shown
        assert {tuple(job.command) for job in sweep.jobs.all()} == {("t", "0.1"), ("t", "0.01")}
        assert 'command: ["t", "{{ lr }}"]' in unescape(page(place, f"{NEW}?sweep={sweep.uid}"))

    def test_by_yaml_makes_sweep(self, place: Town) -> None:
        text = (
            f"pool: {place.cluster.pool.name}\ngpus: 1\nmatrix:\n  lr: [0.10, 1e-3]\nat_once: 1\n"
        )
        place.owner.post(NEW, {"side": "yaml", "yaml": text, "act": "submit"})
        assert Sweep.objects.get().spec["matrix"] == {"lr": ["0.10", "1e-3"]}

    def test_by_form_includes_and_excludes_combinations(self, place: Town) -> None:
        rules = {"exclude": "lr=2,seed=8\n", "include": 'lr=3\n{"note": "a, b"}'}
        answer = send(place, matrix="lr=1,2\nseed=7,8", **rules)
        sweep = Sweep.objects.get()
        rows = sweep.jobs.order_by("sweep_index").values_list("parameters", flat=True)
        assert [(row["lr"], row.get("seed"), row.get("note")) for row in rows if row] == [
            ("1", "7", "a, b"), ("1", "8", "a, b"), ("2", "7", "a, b"), ("3", None, None),
        ]  # fmt: skip # rows of what belongs together
        clone = page(place, f"{NEW}?sweep={sweep.uid}")
        assert 'lr=3\n{"note": "a, b"}' in unescape(clone)
        assert "exclude: [{" in unescape(clone)
        assert answer.status_code == 302
        refused = send(place, matrix="lr=1,2", exclude="rate=1")
        assert "Item 1, rate, is not in the matrix." in refused.content.decode()

    def test_answer_counts_jobs(self, place: Town) -> None:
        sent = {**FORM, "pool": place.cluster.pool.name, "array": "0-3%2", "matrix": "lr=1,2"}
        answer = place.owner.post("/t/north/jobs/dry-run/", sent).content.decode()
        assert "It makes 8 jobs, at most 2 at once." in answer

    def test_names_errors_at_their_fields(self, place: Town) -> None:
        answer = send(place, array="9-0")
        assert answer.status_code == 422
        assert "ends before it starts" in answer.content.decode()
        assert not Sweep.objects.exists()

    def test_clone_has_same_form(self, place: Town) -> None:
        send(place, matrix="lr=0.1,0.01\nseed=1", at_once="1")
        shown = page(place, f"{NEW}?sweep={Sweep.objects.get().uid}")
        assert "lr=0.1,0.01\nseed=1" in shown
        assert "--matrix lr=0.1,0.01" not in shown  # a simulated job has no command
        assert place.owner.get(f"{NEW}?sweep=x").status_code == 404


class TestList:
    def test_shows_sweep_that_folds_out_until_it_has_ended(self, place: Town) -> None:
        send(place, array="0-3%2")
        sweep = Sweep.objects.get()
        sweep.jobs.filter(sweep_index=0).update(state="succeeded", ended_at=place.cluster.at)
        shown = page(place, "/t/north/jobs/")
        assert f'<details id="sweep-{sweep.uid}">' in shown
        assert "1 of 4 jobs ended" in shown
        # A job that waits for its turn is only in the sweep's row.
        listed = [job for job in sweep.jobs.order_by("pk") if f'id="job-{job.uid}"' in shown]
        assert [job.sweep_index for job in listed] == [0, 1]
        assert page(place, "/t/north/jobs/?state=pending").count('id="job-') == 3
        assert 'id="sweeps"' not in page(place, "/t/north/jobs/?state=failed")
        sweep.jobs.update(state="succeeded", ended_at=place.cluster.at, holds=[])
        assert 'id="sweeps"' not in page(place, "/t/north/jobs/")


class TestSweepPage:
    def test_filters_by_state_and_pages(self, place: Town) -> None:
        send(place, array="0-149%1")
        url = f"/sweeps/{Sweep.objects.get().uid}/"
        assert page(place, url).count("<tr id=") == 100
        assert page(place, f"{url}?after=99").count("<tr id=") == 50
        assert page(place, f"{url}?state=pending").count("<tr id=") == 1

    def test_links_to_comparison_of_the_first_jobs_shown(self, place: Town) -> None:
        send(place, array="0-24")
        (link,) = re.findall(
            r'href="(/compare/[^"]*)"', page(place, f"/sweeps/{Sweep.objects.get().uid}/")
        )
        assert link.count("job=") == 20
        assert "20 jobs compared" in page(place, unescape(link))

    def test_cancels_and_resubmits(self, place: Town) -> None:
        send(place, array="0-3%2")
        sweep = Sweep.objects.get()
        sweep.jobs.filter(sweep_index=0).update(state="failed", ended_at=place.cluster.at)
        url = f"/sweeps/{sweep.uid}/"
        assert "Resubmit failed (1)" in page(place, url)
        key = {"key": "0" * 36}
        places = {place.owner.post(f"{url}resubmit/", key)["Location"] for _ in range(2)}
        (again,) = places
        assert again == f"/sweeps/{sweep.resubmissions.get().uid}/"
        place.owner.post(f"{url}cancel/")
        assert set(sweep.jobs.values_list("state", flat=True)) == {"failed", "cancelled"}
        assert "1 of 4 jobs failed." in page(place, url)
        for path in ("cancel/", "resubmit/"):
            assert place.mate.post(url + path).status_code == 403
            assert place.neighbour.post(url + path).status_code == 404
        assert place.neighbour.get(url).status_code == 404

    def test_refuses_to_resubmit_what_did_not_fail(self, place: Town) -> None:
        send(place, array="0-1")
        url = f"/sweeps/{Sweep.objects.get().uid}/"
        answer = place.owner.post(f"{url}resubmit/", follow=True)
        assert "No job of this sweep has failed." in answer.content.decode()


class TestDependency:
    def test_is_named_on_page_of_waiting_and_of_cancelled_job(self, place: Town) -> None:
        first = place.submit()
        answer = send(place, after_ok=str(first.uid))
        shown = page(place, answer["Location"])
        assert "Waits for 1 other job" in " ".join(shown.split())
        assert f'href="/jobs/{first.uid}/"' in shown
        place.owner.post(f"/jobs/{first.uid}/cancel/")
        second = Job.objects.latest("pk")
        assert second.state == "cancelled"
        assert f"because {first.name}" in " ".join(page(place, answer["Location"]).split())

    def test_of_sweep_is_linked_from_its_jobs(self, place: Town) -> None:
        send(place, array="0-1")
        sweep = Sweep.objects.get()
        job = sweep.jobs.order_by("-pk")[0]
        assert "Job 2 of" in page(place, f"/jobs/{job.uid}/")
