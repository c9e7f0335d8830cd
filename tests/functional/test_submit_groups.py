"""Test the groups of the submit form: their fields, their summaries, when they open."""

from __future__ import annotations

import html
import re

import pytest

from scheduling.models import Job
from tests.functional.test_submit_pages import ASK, NEW, field, form
from tests.functional.visitors import Town, town


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Town:
    request.getfixturevalue("db")
    return town()


class TestGroups:
    def test_are_closed_and_fields_of_everybody_are_not_in_them(self, place: Town) -> None:
        page = place.owner.get(NEW).content.decode()
        front, *groups = re.split(r'<details\s+class="more"', page)
        assert [re.search(r" open\b", group.split(">")[0]) for group in groups] == [None] * 6
        front_fields = set(re.findall(r'id="f-(\w+)"', front))
        assert front_fields == {"pool", "gpus", "command", "gpu_types", "name"}
        described = set(re.findall(r'aria-describedby="(hint-\w+) err-', page))
        assert described <= set(re.findall(r'<div popover id="(hint-\w+)"', page))

    def test_show_what_is_set_and_open_with_it(self, place: Town) -> None:
        typed = {"tags": "a b", "priority": "-5", "held": "true", "comment": "x" * 50}
        page = place.owner.post(NEW, form(place, **typed)).content.decode()
        assert '<details class="more" id="group-order" open>' in " ".join(page.split())
        assert '<details class="more" id="group-many" >' in " ".join(page.split())
        step = place.owner.post(ASK, form(place, **typed)).content.decode()
        for shown in (page, step):
            texts = dict(re.findall(r'id="set-(\w+)"[^>]*>(.*?)</span>', shown))
            assert texts["order"] == "Hold, Priority: -5"
            assert texts["notes"] == f"Tags: a b, Comment: {'x' * 40}…"

    def test_open_with_error(self, place: Town) -> None:
        page = place.owner.post(NEW, form(place, environment="SEED")).content.decode()
        assert '<details class="more" id="group-resources" open>' in " ".join(page.split())

    def test_held_job_is_held_by_its_tenant(self, place: Town) -> None:
        sent = form(place, held="true", command="true", priority="-5")
        page = html.unescape(place.owner.post(ASK, sent).content.decode())
        assert "held: true\n" in field(page, "yaml")
        assert "--priority -5 --hold -- true" in page
        text = field(page, "yaml")
        again = place.owner.post(ASK, {"side": "yaml", "yaml": text}).content.decode()
        assert re.search(r'<input(?=[^>]*id="f-held")[^>]*\bchecked\b', again)
        place.owner.post(NEW, {**sent, "act": "submit"})
        assert (Job.objects.get().holds, Job.objects.get().priority) == (["tenant"], -5)
        refused = place.owner.post(NEW, {**sent, "held": "maybe", "act": "submit"})
        assert "must be true or false" in refused.content.decode()
