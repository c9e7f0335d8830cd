"""Test interactive jobs: their requests, who may open them, and reports that lie."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import Client
from django.utils import timezone

from portal.site.environment import SettingError, port_range, session_domain
from scheduling.engine.executors import session_files
from scheduling.engine.executors.session_files import parse_session, upstream
from scheduling.models import Job, Lease, LeaseSlot, Node, Pool
from scheduling.services import sessions
from scheduling.services.sessions import SessionState, find_target, open_session
from tenants.models import User
from tests.functional.api_stage import ROLES, ApiStage, api_stage
from tests.functional.visitors import signed_in

DOMAIN = "sessions.test"


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: Path, settings: Any) -> ApiStage:
    request.getfixturevalue("db")
    settings.LOCAL_ROOT = str(tmp_path)
    settings.SESSIONS_DOMAIN = DOMAIN
    made = api_stage()
    made.person("mate", "aa", ROLES.MEMBER)
    made.person("vera", "aa", ROLES.VIEWER)
    made.person("max", "aa", ROLES.MANAGER)
    made.person("olga", site_role="operator")
    Pool.objects.update(executor="local")
    return made


def running(stage: ApiStage, tmp_path: Path, *, shared: bool = False, **said: Any) -> Job:
    """Submit a notebook as ada, give it a lease, and write its report."""
    made = stage.post("jobs", session_spec(stage, session_shared=shared))
    assert made.status_code == 201, made.json()
    job = Job.objects.get(uid=made.json()["id"])
    now = timezone.now()
    lease = Lease.objects.create(
        pool=job.pool, tenant=job.tenant, job=job, gpu_type=stage.cluster.gpu_type, number=1,
        state="running", gpus=1, placement=[], granted_round=1, granted_at=now, started_at=now,
        expires_at=now, own=1, borrowed=0, price=0,
    )  # fmt: skip # rows of what belongs together
    node = Node.objects.filter(pool=job.pool)[0]
    LeaseSlot.objects.create(lease=lease, node=node, slot=LeaseSlot.objects.count(), holding=True)
    Job.objects.filter(pk=job.pk).update(state="running")
    report = {"version": 1, "lease": 1, "host": "", "port": 42042, "idle_s": 60, "used_s": 5}
    (tmp_path / str(job.pk)).mkdir()
    text = json.dumps({**report, "problem": "", **said})
    (tmp_path / str(job.pk) / "session.json").write_text(text)
    return Job.objects.select_related("pool", "tenant").get(pk=job.pk)


def session_spec(stage: ApiStage, **more: Any) -> dict[str, Any]:
    return {"pool": stage.pool, "gpus": 1, "session": "notebook", **more}


class TestRequest:
    def test_has_the_program_and_limits(self, stage: ApiStage) -> None:
        spec = session_spec(stage, session_idle_s=600, session_s=7200, session_shared=True)
        job = Job.objects.get(uid=stage.post("jobs", spec).json()["id"])
        assert job.command == ["python", "-m", "evenshare.session"]
        assert (job.session, job.session_idle_s, job.session_s) == ("notebook", 600, 7200)
        assert job.session_shared

    @pytest.mark.parametrize(
        ("more", "field"),
        [
            ({"session": "vnc"}, "session"),
            ({"session_idle_s": 20_000}, "session_idle_s"),
            ({"session_idle_s": 1}, "session_idle_s"),
            ({"session_shared": "yes"}, "session_shared"),
            ({"session": "", "session_s": 600, "command": ["true"]}, "session_s"),
        ],
    )
    def test_refuses_wrong_values(self, stage: ApiStage, more: Any, field: str) -> None:
        refused = stage.post("jobs", session_spec(stage, **more))
        assert [error["field"] for error in refused.json()["errors"]] == [field]

    def test_is_refused_while_sessions_are_off(self, stage: ApiStage, settings: Any) -> None:
        settings.SESSIONS_DOMAIN = ""
        (error,) = stage.post("jobs", session_spec(stage)).json()["errors"]
        assert error["field"] == "session"
        assert "SESSIONS_DOMAIN" in error["hint"]

    def test_is_refused_for_simulated_jobs(self, stage: ApiStage) -> None:
        Pool.objects.update(executor="virtual")
        (error,) = stage.post("jobs", session_spec(stage)).json()["errors"]
        assert error["field"] == "session"


class TestForm:
    NEW = "/t/aa/jobs/new/"

    def test_submits_a_shell_without_a_command(self, stage: ApiStage, settings: Any) -> None:
        client = signed_in(User.objects.get(username="ada"))
        assert 'id="f-session"' in client.get(self.NEW).content.decode()
        typed = {"pool": stage.pool, "gpus": "1", "session": "shell", "session_s": "7200"}
        sent = {**typed, "side": "form", "act": "submit", "key": "one"}
        assert client.post(self.NEW, sent).status_code == 302
        job = Job.objects.get()
        assert (job.session, job.session_s, job.command[-1]) == ("shell", 7200, "evenshare.session")
        settings.SESSIONS_DOMAIN = ""
        assert 'id="f-session"' not in client.get(self.NEW).content.decode()
        # A copy of the job still shows what it has.
        page = client.get(f"{self.NEW}?from={job.uid}").content.decode()
        assert 'id="f-session"' in page

    def test_has_no_session_in_simulated_pools(self, stage: ApiStage) -> None:
        Pool.objects.update(executor="virtual")
        client = signed_in(User.objects.get(username="ada"))
        assert 'id="f-session"' not in client.get(self.NEW).content.decode()


class TestOpening:
    @pytest.mark.parametrize(
        ("name", "own", "shared"),
        [
            ("ada", 200, 200), ("mate", 403, 200), ("max", 403, 200), ("vera", 403, 403),
            ("olga", 403, 403), ("bob", 404, 404),
        ],
    )  # fmt: skip # a table
    def test_is_for_submitter_or_members(
        self, stage: ApiStage, tmp_path: Path, name: str, own: int, shared: int
    ) -> None:
        for is_shared, status in ((False, own), (True, shared)):
            job = running(stage, tmp_path, shared=is_shared)
            answer = stage.post(f"jobs/{job.uid}/session", as_=name)
            assert answer.status_code == status
            client = Client()
            client.force_login(stage.people[name])
            page = client.post(f"/jobs/{job.uid}/session/")
            assert page.status_code == (302 if status == 200 else status)
            if status == 200:
                assert answer.json()["url"].startswith(f"https://{job.uid.hex}.{DOMAIN}/")
                assert page["Location"].startswith(f"https://{job.uid.hex}.{DOMAIN}/")

    def test_waits_for_the_server(self, stage: ApiStage, tmp_path: Path) -> None:
        job = running(stage, tmp_path, port=0, problem="Jupyter is not installed")
        answer = stage.post(f"jobs/{job.uid}/session").json()
        assert answer["url"] is None
        assert answer["session"]["problem"] == "Jupyter is not installed"
        assert stage.post(f"jobs/{stage.job().uid}/session").status_code in (400, 403)

    def test_needs_a_small_scope(self, stage: ApiStage, tmp_path: Path) -> None:
        job = running(stage, tmp_path)
        from tenants.tokens import Scope

        stage.secrets["reader"] = stage.token("ada", Scope.JOBS_READ)
        assert stage.post(f"jobs/{job.uid}/session", as_="reader").status_code == 403


class TestJobPage:
    def test_says_when_the_session_opens(self, stage: ApiStage) -> None:
        made = stage.post("jobs", session_spec(stage)).json()
        client = Client()
        client.force_login(stage.people["ada"])
        assert "opens here once the job runs" in client.get(f"/jobs/{made['id']}/").content.decode()

    @pytest.mark.parametrize(
        ("state", "may", "words"),
        [
            (SessionState("notebook", True, 60), True, "Open the notebook"),
            (SessionState("notebook", True, 60), False, "Only its submitter"),
            (SessionState("shell", True, 0), True, "evenshare shell --attach"),
            (SessionState("shell", True, 0), True, "It is not used"),
            (SessionState("shell", True, 90, 120), True, "Its time limit is in"),
            (SessionState("notebook"), True, "is starting"),
            (SessionState("notebook", problem="no <Jupyter>"), True, "no &lt;Jupyter&gt;"),
        ],
    )
    def test_leads_into_it(
        self, stage: ApiStage, tmp_path: Path, state: SessionState, may: object, words: str
    ) -> None:
        context = {"job": running(stage, tmp_path), "session": state, "may_open": may}
        assert words in render_to_string("jobs/_session.html", context)


class TestTarget:
    def token(self, job: Job, stage: ApiStage, name: str = "ada") -> str:
        now = timezone.now()
        link = open_session(job=job, user=stage.people[name], now=now)
        assert link.url is not None
        code = link.url.partition("code=")[2]
        host = f"{job.uid.hex}.{DOMAIN}"
        token = sessions.enter_session(host=host, code=code, now=now)
        assert token is not None
        return token

    def test_is_the_lease_with_its_secret(self, stage: ApiStage, tmp_path: Path) -> None:
        job, other = running(stage, tmp_path), running(stage, tmp_path)
        token = self.token(job, stage)
        target = find_target(host=f"{job.uid.hex}.{DOMAIN}", token=token)
        assert target is not None
        assert target.address == "127.0.0.1:42042"
        assert target.authorization == f"token {session_files.session_secret(job, 1)}"
        assert session_files.session_secret(other, 1) not in target.authorization
        assert session_files.session_secret(job, 2) not in target.authorization
        for host in (
            *(f"{other.uid.hex}.{DOMAIN}", f"{job.uid.hex}.{DOMAIN}.evil.test", DOMAIN, ""),
            *(f"x.{job.uid.hex}.{DOMAIN}", f"{job.uid}.{DOMAIN}", f"{job.uid.hex}.{DOMAIN}:80"),
        ):
            assert find_target(host=host, token=token) is None

    def test_ends_with_job_person_and_time(
        self, stage: ApiStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = running(stage, tmp_path)
        host, token = f"{job.uid.hex}.{DOMAIN}", self.token(job, stage)
        ada = stage.people["ada"]
        for model, before, after in (
            (Lease.objects.filter(job=job), {"state": "running"}, {"state": "stopping"}),
            (type(ada).objects.filter(pk=ada.pk), {"is_active": True}, {"is_active": False}),
            (ada.memberships, {"role": "member"}, {"role": "viewer"}),
            (ada.memberships, {"tenant": job.tenant}, {"tenant": stage.cluster.tenants["bb"]}),
        ):
            model.update(**after)
            assert find_target(host=host, token=token) is None
            model.update(**before)
            assert find_target(host=host, token=token) is not None
        monkeypatch.setattr(sessions, "TOKEN_S", -1)
        assert find_target(host=host, token=token) is None
        assert find_target(host=host, token=token[:-1]) is None

    def test_code_is_not_good_after_a_minute(self, stage: ApiStage, tmp_path: Path) -> None:
        job, now = running(stage, tmp_path), timezone.now()
        link = open_session(job=job, user=stage.people["ada"], now=now)
        assert link.url is not None
        code, host = link.url.partition("code=")[2], f"{job.uid.hex}.{DOMAIN}"
        late = now + timedelta(seconds=sessions.CODE_S)
        assert sessions.enter_session(host=host, code=code, now=late) is None
        assert sessions.enter_session(host=host, code=code, now=now) is None


class TestReport:
    @pytest.mark.parametrize(
        "said",
        [
            {"port": 22}, {"port": 8000}, {"port": 41999}, {"port": 43000}, {"port": -1},
            {"port": "42042"}, {"port": True}, {"port": 42042.0}, {"host": 5}, {"host": "x" * 256},
            {"lease": 2}, {"version": 2}, {"idle_s": -1}, {"idle_s": "0"}, {"used_s": 1e400},
            {"problem": None}, {"problem": "x" * 5000},
        ],
    )  # fmt: skip # a table
    def test_that_lies_is_not_used(self, said: dict[str, Any]) -> None:
        fine = {"version": 1, "lease": 1, "host": "", "port": 42042, "idle_s": 0, "used_s": 0}
        fine["problem"] = ""
        assert parse_session(json.dumps(fine).encode(), 1, 0) is not None
        assert parse_session(json.dumps({**fine, **said}).encode(), 1, 0) is None

    @pytest.mark.parametrize("text", [b"", b"[]", b"{", b"null", b"[" * 4000, b"\xff"])
    def test_that_is_no_report_is_not_used(self, text: bytes) -> None:
        assert parse_session(text, 1, 0) is None

    @pytest.mark.parametrize(
        ("host", "nodes", "address"),
        [
            ("", ["n1"], "n1:42042"),
            ("n2", ["n1", "n2"], "n2:42042"),
            ("", ["n1", "n2"], ""),
            ("n3", ["n1", "n2"], ""),
            ("169.254.169.254", ["n1"], ""),
            ("localhost", ["n1"], ""),
            ("", ["localhost"], ""),
            ("", ["localhost.localdomain"], ""),
            ("", ["127.0.0.1"], ""),
            ("", ["10.0.0.7"], ""),
            ("", ["n1:22/x"], ""),
            ("n1@evil", ["n1@evil"], ""),
        ],
    )
    def test_names_only_a_node_of_its_lease(
        self, host: str, nodes: list[str], address: str
    ) -> None:
        report = session_files.SessionReport(host, 42042, 0, 0, "", 0)
        lease = Lease(pool=Pool(executor="slurm"), job=Job())
        assert upstream(lease, report, nodes) == address
        assert upstream(lease, report._replace(age_s=61), nodes) == ""
        assert upstream(lease, report._replace(port=0), nodes) == ""


class TestSettings:
    @pytest.mark.parametrize("value", ["*.x.test", "https://x", "x test", "portal.test", "test"])
    def test_refuse_domains_of_the_portal(self, value: str) -> None:
        with pytest.raises(SettingError, match="SESSIONS_DOMAIN"):
            session_domain("SESSIONS_DOMAIN", value, ["portal.test"])

    def test_take_another_domain(self) -> None:
        domain = session_domain("SESSIONS_DOMAIN", "S.portal.test:8443", ["portal.test"])
        assert domain == "s.portal.test:8443"
        assert session_domain("SESSIONS_DOMAIN", "off", ["portal.test"]) == ""

    @pytest.mark.parametrize("value", ["22-80", "5000", "5000-4000", "a-b", "5000-70000"])
    def test_refuse_ports_of_other_services(self, value: str) -> None:
        with pytest.raises(SettingError, match="SESSION_PORTS"):
            port_range("SESSION_PORTS", value)
