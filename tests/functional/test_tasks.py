"""Test that the commonest tasks take at most three clicks from the page after sign-in.

docs/tasks.md lists them. A click follows a link of the present page, opens a menu, or sends a form
of the page. Links are matched by address and forms by their target, so words may change.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import pytest
from django.test import Client

from scheduling.engine.clock import read_clock
from scheduling.models import Job, Sweep
from scheduling.services.sweeps import submit_sweep
from tenants.models import IdleOffer, Membership, User
from tests.architecture.sources import ROOT
from tests.functional.visitors import Town, town, visitor

MOST = 3
OF_THE_LEAD = ("lends_idle_gpus_until_a_day", "requests_more_quota", "invites_a_student")


class Controls(HTMLParser):
    """Collects the links of a page, and its forms with the values that they send unchanged."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.forms: dict[str, dict[str, str]] = {}
        self._form = ""
        self._by_id: dict[str, str] = {}
        # The form and the name of the textarea or select that is open.
        self._open: tuple[str, str] | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "form":
            self._form = f"{given.get('method', 'get')} {given.get('action', '')}"
            self.forms.setdefault(self._form, {})
            if "id" in given:
                self._by_id[given["id"]] = self._form
        form = self._by_id.get(given.get("form", ""), self._form)
        is_left_out = given.get("type") in ("checkbox", "radio") and "checked" not in given
        if tag == "input" and form and "name" in given and not is_left_out:
            self.forms[form][given["name"]] = given.get("value", "")
        if tag in ("textarea", "select") and form:
            self._open = form, given.get("name", "")
        if tag == "option" and self._open and ("selected" in given or self._is_first()):
            self.forms[self._open[0]][self._open[1]] = given.get("value", "")

    def _is_first(self) -> bool:
        return self._open is not None and self._open[1] not in self.forms[self._open[0]]

    def handle_data(self, data: str) -> None:
        if self._open and self.lasttag == "textarea":
            self.forms[self._open[0]][self._open[1]] = data.removeprefix("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = ""
        if tag in ("textarea", "select"):
            self._open = None


@dataclass
class Visit:
    """A signed-in person's way through the pages, from the page after sign-in."""

    client: Client
    path: str = "/t/north/"
    page: str = ""
    clicks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._read(self.client.get(self.path, follow=True))

    def follow(self, address: str) -> None:
        """Follow the first link whose address matches."""
        links = [one for one in Controls(self.page).links if re.search(address, one)]
        assert links, f"no link to {address} on {self.path}"
        self.clicks.append(links[0])
        self.path = urljoin(self.path, links[0])
        self._read(self.client.get(self.path, follow=True))

    def menu(self, address: str) -> None:
        """Open the menu of the account, and follow one of its links."""
        self.clicks.append("account menu")
        self.follow(address)

    def send(self, target: str, **values: str | list[str]) -> None:
        """Send the form whose target matches, with its values and these."""
        forms = Controls(self.page).forms
        named = [one for one in forms if re.search(target, one.partition(" ")[2] or self.path)]
        assert named, f"no form to {target} on {self.path}: {sorted(forms)}"
        method, _, action = named[0].partition(" ")
        self.clicks.append(named[0])
        # A form without a target goes to its page, whose query it replaces.
        self.path = urljoin(self.path.partition("?")[0], action)
        ask = self.client.post if method == "post" else self.client.get
        self._read(ask(self.path, {**forms[named[0]], **values}, follow=True))

    def _read(self, answer: object) -> None:
        self.page = getattr(answer, "content", b"").decode()
        errors = re.findall(r'class="err[^>]*>([^<]*)', self.page)
        assert getattr(answer, "status_code", 0) == 200, (self.path, errors)
        if chain := getattr(answer, "redirect_chain", ()):
            self.path = urlsplit(chain[-1][0]).path


@dataclass
class Tasks:
    """A tenant with jobs of each kind; a method for each task, by its number in the document."""

    place: Town
    lead: Client
    running: Job
    queued: Job
    lost: Job
    sweep: Sweep

    def sees_running_jobs(self, visit: Visit) -> None:
        visit.follow(r"/jobs/\?.*submitter=me")
        assert f"/jobs/{self.running.uid}/" in visit.page

    def reads_why_a_job_is_queued(self, visit: Visit) -> None:
        visit.follow(r"/jobs/\?.*submitter=me")
        visit.follow(f"/jobs/{self.queued.uid}/")
        assert "Why it is queued" in visit.page

    def submits_a_job_like_the_last(self, visit: Visit) -> None:
        visit.follow(f"/jobs/{self.running.uid}/")
        visit.follow(r"/jobs/new/\?.*from=")
        pool = self.place.cluster.pool.name
        visit.send("/jobs/new/", act="submit", side="form", pool=pool, name="again")
        assert Job.objects.filter(name="again", gpus=8).exists()

    def runs_a_sweep_of_twelve(self, visit: Visit) -> None:
        visit.follow("/t/north/jobs/new/")
        pool = self.place.cluster.pool.name
        visit.send(
            "/jobs/new/", act="submit", side="form", pool=pool, gpus="1", array="0-11",
            name="many", duration_s="60",
        )  # fmt: skip
        assert Sweep.objects.get(name="many").jobs.count() == 12

    def finds_last_weeks_job_by_its_exit_code(self, visit: Visit) -> None:
        visit.follow(r"/jobs/\?.*submitter=me")
        visit.clicks.append("more filters")
        visit.send(r"/jobs/(\?|$)", exit_code="137", submitter="me")
        assert f"/jobs/{self.lost.uid}/" in visit.page
        assert f"/jobs/{self.running.uid}/" not in visit.page

    def compares_the_runs_of_a_sweep(self, visit: Visit) -> None:
        visit.follow(r"/t/north/jobs/(\?(?!.*submitter).*)?$")
        visit.follow(f"/sweeps/{self.sweep.uid}/")
        visit.follow("/compare/")
        assert all(str(one.uid) in visit.page for one in self.sweep.jobs.all())

    def holds_and_releases(self, visit: Visit) -> None:
        visit.follow(r"/jobs/\?.*submitter=me")
        visit.follow(f"/jobs/{self.queued.uid}/")
        visit.send("/hold/")
        assert Job.objects.get(pk=self.queued.pk).holds == ["tenant"]
        visit.clicks.pop()
        visit.send("/release/")
        assert Job.objects.get(pk=self.queued.pk).holds == []

    def is_notified_when_a_job_ends(self, visit: Visit) -> None:
        visit.menu("/account/notifications/")
        visit.send(
            "/notifications/", channel="ntfy", address="https://ntfy.example.org/x",
            kinds=["job_ended"], tenant="north",
        )  # fmt: skip
        assert "ntfy.example.org" in visit.page

    def makes_a_token(self, visit: Visit) -> None:
        visit.menu("/account/tokens/")
        visit.send("/tokens/", name="ci", days="30", scopes=["read"], old_password="a long one")
        assert "es_" in visit.page

    def lends_idle_gpus_until_a_day(self, visit: Visit) -> None:
        visit.follow("/t/north/sharing/")
        visit.send("/sharing/", act="set", gpu_type="v100", by_offer="offers")
        visit.send(
            "/sharing/", act="offer", gpu_type="v100", gpus="2", floor_price="0",
            until="2030-01-07T00:00:00Z",
        )  # fmt: skip
        assert IdleOffer.objects.get().gpus == 2

    def requests_more_quota(self, visit: Visit) -> None:
        visit.follow("/t/north/quota/")
        wish = {"gpu_type": "v100", "gpus": "6", "until": "", "reason": "a deadline"}
        visit.send("/quota/", do="ask", **wish)
        assert "a deadline" in visit.page

    def sees_who_uses_the_quota(self, visit: Visit) -> None:
        visit.follow(rf"/pools/{self.place.cluster.pool.name}/$")
        assert "South" in visit.page or "south" in visit.page

    def invites_a_student(self, visit: Visit) -> None:
        visit.follow("/t/north/members/")
        visit.send("/members/", do="invite", role="member", note="a student")
        assert "/join/" in visit.page

    def sees_last_months_payments(self, visit: Visit) -> None:
        visit.follow("/ledger/")
        visit.follow("/t/north/ledger/statement/")
        assert "statement" in visit.page.lower()

    def verifies_a_round(self, visit: Visit) -> None:
        visit.follow(r"/pools/[^/]+/rounds/\d+/")
        assert "evenshare round verify" in visit.page


@pytest.fixture
def tasks(request: pytest.FixtureRequest) -> Tasks:
    request.getfixturevalue("committed_db")
    place = town()
    ada = User.objects.get(username="ada")
    ada.set_password("a long one")
    ada.save()
    place.owner.force_login(ada)
    jobs = [place.submit(gpus) for gpus in (8, 4, 1)]
    Job.objects.filter(pk__in=[job.pk for job in jobs]).update(submitted_by=ada)
    place.play(2)
    running, queued, lost = (Job.objects.get(pk=job.pk) for job in jobs)
    Job.objects.filter(pk=lost.pk).update(
        state="failed", exit_code=137, ended_at=place.cluster.at, reason_code="exit"
    )
    spec = {"pool": place.cluster.pool.name, "gpus": 1, "matrix": {"lr": ["1", "2"]}}
    made = submit_sweep(tenant=place.tenant, user=ada, spec=spec, now=read_clock)
    lead = visitor("lea", place.tenant, Membership.Role.MANAGER)
    return Tasks(place, lead, running, queued, lost, made.row)


def named() -> list[Callable[[Tasks, Visit], None]]:
    return [one for name, one in vars(Tasks).items() if not name.startswith("_") and callable(one)]


def test_take_at_most_three_clicks(tasks: Tasks) -> None:
    wrong = []
    for task in named():
        visit = Visit(tasks.lead if task.__name__ in OF_THE_LEAD else tasks.place.owner)
        try:
            task(tasks, visit)
        except AssertionError as error:
            wrong.append(f"{task.__name__}: {str(error)[:300]}")
        if len(visit.clicks) > MOST:
            wrong.append(f"{task.__name__}: {visit.clicks}")
    assert not wrong, "\n".join(wrong)


def test_are_in_the_document_with_existing_tests() -> None:
    document = (ROOT / "docs" / "tasks.md").read_text()
    listed = re.findall(r"`(test_\w+\.py)::([\w:]+)`", document)
    assert {name for file, name in listed if file == "test_tasks.py"} == {
        one.__name__ for one in named()
    }
    assert len(listed) == 20
    for file, name in listed:
        source = "".join(path.read_text() for path in (ROOT / "tests").rglob(file))
        for part in name.split("::"):
            assert re.search(rf"(class|def) {part}\b", source), f"{file} has no {name}"
