"""Test a job's link as sent to other people: what each person sees and does not see."""

from __future__ import annotations

import pytest

from scheduling.models import Job
from tenants.models import Membership, User
from tests.functional.visitors import Town, town, visitor

ADVICE = 'id="acts-none"'
PASSWORD = "correct horse battery"


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Town:
    request.getfixturevalue("db")
    return town()


def submitted(place: Town) -> str:
    """Submit a job as ada, and return its page's address."""
    sent = {"side": "form", "pool": place.cluster.pool.name, "gpus": "2", "act": "submit"}
    place.owner.post("/t/north/jobs/new/", sent)
    return f"/jobs/{Job.objects.get().uid}/"


class TestSharedLink:
    def test_opens_as_far_as_roles_allow_and_says_what_is_missing(self, place: Town) -> None:
        link = submitted(place)
        own = place.owner.get(link).content.decode()
        assert ADVICE not in own
        colleague = visitor("cyd", place.tenant).get(link).content.decode()
        assert "Only its submitter or a manager may hold it" in colleague
        # Members may cancel jobs of each other; the question names whose job it is.
        assert f"Members of {place.tenant.name} may cancel it." in colleague
        assert "ada submitted it." in colleague
        assert "ada submitted it." not in own
        assert 'id="cancel-ask"' in colleague
        assert 'id="hold"' not in colleague
        viewer = place.mate.get(link).content.decode()
        assert "You may read this job." in viewer
        assert 'id="cancel-ask"' not in viewer
        manager = visitor("mag", place.tenant, Membership.Role.MANAGER).get(link).content.decode()
        assert ADVICE not in manager
        for stranger in (place.neighbour, place.outsider):
            assert stranger.get(link).status_code == 404

    def test_leads_through_login_back_to_the_job(self, place: Town) -> None:
        link = submitted(place)
        user = User.objects.create_user("new", password=PASSWORD)
        Membership.objects.create(user=user, tenant=place.tenant, role="viewer")
        login = place.nobody.get(link).headers["Location"]
        assert login == f"/login/?next={link}"
        sent = {"username": "new", "password": PASSWORD}
        assert place.nobody.post(login, sent).headers["Location"] == link
        assert place.nobody.get(link).status_code == 200
