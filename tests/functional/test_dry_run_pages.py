"""Test the submit page's answers before a submission: prices, own GPUs, impossible jobs."""

from __future__ import annotations

import re

import pytest

from scheduling.models import Job
from tenants.models import Quota
from tests.functional.test_submit_pages import ASK, NEW, form, says
from tests.functional.visitors import Town, town


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Town:
    request.getfixturevalue("db")
    return town()


class TestDryRunAnswer:
    def test_shows_price_range_until_renewal(self, place: Town) -> None:
        page = place.owner.post(ASK, form(place, gpus="8")).content.decode()
        assert "costs 0.00 to 1.00 credits per GPU-hour" in says(page)
        assert "at most 1.0000 credits" in says(page)

    def test_names_gpu_type_of_price_if_several_are_accepted(self, place: Town) -> None:
        """Regression: the page promised the cheaper type's price as a maximum for both types."""
        page = place.owner.post(ASK, form(place, gpus="8")).content.decode()
        assert "Borrowing 4 GPUs costs" in says(page)
        place.cluster.add_type("k80", nodes=1, gpus=8, quotas={})
        page = place.owner.post(ASK, form(place, gpus="8")).content.decode()
        assert "Borrowing 4 GPUs of v100 costs" in says(page)
        assert "It may start on k80 instead, at the price there." in says(page)
        page = place.owner.post(ASK, form(place, gpus="8", gpu_types="v100")).content.decode()
        assert "Borrowing 4 GPUs costs" in says(page)

    def test_disables_submission_of_impossible_jobs(self, place: Town) -> None:
        for gpus, reason in (("9", "larger than the pool"), ("6", "borrowing limit")):
            Quota.objects.filter(tenant=place.tenant).update(borrow_limit=1)
            for path in (ASK, NEW):
                page = place.owner.post(path, form(place, gpus=gpus)).content.decode()
                assert re.search(r'<button[^>]*id="submit"[^>]*disabled', page), gpus
                assert f"This job could never run ({reason})" in page
            sent = place.owner.post(NEW, form(place, gpus=gpus, act="submit"))
            assert sent.status_code == 422
            assert re.search(r'id="err-gpus"[^>]*>\s*<p', sent.content.decode())
        page = place.owner.post(ASK, form(place, gpus="5")).content.decode()
        assert not re.search(r'<button[^>]*id="submit"[^>]*disabled', page)
        assert Job.objects.count() == 0

    def test_own_gpus_never_exceed_quota(self, place: Town) -> None:
        page = place.owner.post(ASK, form(place, gpus="64")).content.decode()
        own = [int(text) for text in re.findall(r'data-label="Own">(\d+)<', page)]
        assert own
        assert max(own) <= 4

    def test_shows_cli_command_only_if_job_has_a_command(self, place: Town) -> None:
        page = place.owner.post(ASK, form(place)).content.decode()
        assert "evenshare job submit" not in page
        assert "For the CLI equivalent, enter a command." in page
        page = place.owner.post(ASK, form(place, command="python x.py")).content.decode()
        assert "-- python x.py" in page
        shown = place.owner.get(f"/jobs/{place.submit().uid}/").content.decode()
        assert "evenshare job submit" not in shown
        assert "curl" in shown
