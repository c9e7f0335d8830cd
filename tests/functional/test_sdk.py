"""Test the SDK against a live portal, through a connection that breaks; and its documentation."""

from __future__ import annotations

import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from django.utils import timezone

from evenshare import (
    Client,
    InvalidRequestError,
    MissingError,
    RequestConflictError,
    UnauthenticatedError,
    UsageError,
)
from evenshare.cli import api
from portal.site.api import document
from portal.site.client_answers import client_answers
from scheduling.models import Job, Message, Subscription
from scheduling.requests.job_yaml import write_yaml
from scheduling.selectors.jobs.requests import job_as_request
from tests.architecture.sources import ROOT
from tests.functional.api_stage import ApiStage, api_stage

EXAMPLES = re.findall(r"(?s)```python\n(.*?)```", (ROOT / "docs" / "sdk.md").read_text())


@dataclass
class Wire:
    """A proxy before the portal; it cuts the answers to the next `cuts` requests."""

    target: str
    url: str = ""
    cuts: int = 0
    seen: list[tuple[str, str]] = field(default_factory=list)

    def forward(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        request = urllib.request.Request(  # noqa: S310 - the test's own server
            self.target + handler.path,
            data=handler.rfile.read(length) if handler.command == "POST" else None,
            headers=dict(handler.headers),
            method=handler.command,
        )
        try:
            answer = urllib.request.urlopen(request)  # noqa: S310 - as above
        except urllib.error.HTTPError as refused:
            answer = refused
        with answer:
            status, data = answer.status, answer.read()
            kind = answer.headers["Content-Type"]
        self.seen.append((handler.command, handler.path))
        if self.cuts:
            self.cuts -= 1
            handler.close_connection = True
            return
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)


@dataclass
class SdkScene:
    """A portal behind a wire, and the login of a researcher."""

    stage: ApiStage
    wire: Wire
    client: Client

    def submit(self, **more: object) -> str:
        spec = {"pool": self.stage.pool, "gpus": 2, "command": ["true"], **more}
        return str(self.client.jobs.submit(**spec)["id"])  # type: ignore[arg-type]  # a test's own


@pytest.fixture
def scene(site: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SdkScene]:
    stage, wire = api_stage(), Wire(site)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wire.forward(self)

        def do_POST(self) -> None:
            wire.forward(self)

        def do_DELETE(self) -> None:
            wire.forward(self)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    wire.url = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    monkeypatch.setenv("EVENSHARE_URL", wire.url)
    monkeypatch.setenv("EVENSHARE_TOKEN", stage.secrets["ada"])
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(api, "PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(api, "PAGE", 2)
    yield SdkScene(stage, wire, Client())
    server.shutdown()
    server.server_close()


class TestSdk:
    def test_makes_one_job_although_answers_are_cut(self, scene: SdkScene) -> None:
        scene.wire.cuts = 2
        made = scene.submit(name="cut")
        assert scene.wire.seen == [("POST", "/api/v1/jobs")] * 3
        assert [str(job.uid) for job in Job.objects.all()] == [made]

        # A cut answer of another process is repeated by its key.
        assert scene.submit(name="kept", key="k") == scene.submit(name="kept", key="k")
        with pytest.raises(RequestConflictError) as refused:
            scene.submit(name="other", key="k")
        assert refused.value.reason_code == "idempotency_mismatch"
        assert Job.objects.count() == 2

    def test_lists_by_cursors_and_reads_jobs(self, scene: SdkScene, tmp_path: Path) -> None:
        ids = [scene.submit(name=f"n{number}") for number in range(5)]
        client = scene.client
        scene.wire.seen.clear()
        listed = client.jobs.list(state="queued")
        assert scene.wire.seen == []
        assert [job["id"] for job in listed] == ids[::-1]
        assert len(scene.wire.seen) == 3
        assert [job["name"] for job in client.jobs.list(limit=3)] == ["n4", "n3", "n2"]

        job = client.jobs.get(ids[0])
        assert client.jobs.why(job)["state"] == "pending"
        assert client.jobs.logs(job) == ""
        with pytest.raises(TimeoutError, match="is still pending"):
            client.jobs.wait(job, timeout=0)
        assert client.jobs.cancel(job)["state"] == "cancelled"
        assert client.jobs.wait(job)["state"] == "cancelled"

        row = Job.objects.get(uid=ids[1])
        copied = tmp_path / "job.yaml"
        copied.write_text(write_yaml({**job_as_request(row), "name": "again"})[0])
        assert client.jobs.dry_run(file=copied)["feasible"]
        again = client.jobs.submit(file=copied, gpus=1)
        assert (again["gpus"], again["name"]) == (1, "again")

        [pool] = client.pools.list()
        assert client.pools.get(pool["name"])["types"][0]["gpus"] == pool["gpus"]
        assert len(list(client.pools.queue(pool["name"]))) == 5
        assert [one["gpus"] for one in client.quota(pool=pool["name"])] == [3]
        assert client.price() == scene.stage.get("prices").json()["results"]

        table = client.jobs.to_pandas(state="pending")
        assert list(table["name"]) == ["again", "n4", "n3", "n2", "n1"]
        assert str(table["submitted_at"].dt.tz) == "UTC"

    def test_orders_jobs_and_runs_sweeps(self, scene: SdkScene) -> None:
        client = scene.client
        job = client.jobs.get(scene.submit(name="first"))
        assert client.jobs.hold(job)["holds"] == ["tenant"]
        assert client.jobs.release(job)["holds"] == []
        assert client.jobs.prioritize(job, -3)["priority"] == -3
        [tagged] = client.jobs.act("tag", [job], tags=["paper"])
        assert (tagged["id"], tagged["outcome"]) == (job["id"], "done")
        assert [one["id"] for one in client.jobs.list(tag="paper")] == [job["id"]]

        spec = {"pool": scene.stage.pool, "gpus": 1, "command": ["true"]}
        sweep = client.sweeps.submit(**spec, matrix={"lr": ["1", "2", "3"]}, at_once=1)  # type: ignore[arg-type]  # a test's own
        assert [one["parameters"]["lr"] for one in client.sweeps.jobs(sweep)] == ["1", "2", "3"]
        assert len(list(client.sweeps.jobs(sweep, state="held"))) == 2
        assert [one["id"] for one in client.sweeps.list()] == [sweep["id"]]
        with pytest.raises(TimeoutError, match="is still pending"):
            client.sweeps.wait(sweep, timeout=0)
        with pytest.raises(RequestConflictError):
            client.sweeps.resubmit_failed(sweep)
        Job.objects.filter(parameters={"lr": "1"}).update(state="failed", ended_at=timezone.now())
        again = client.sweeps.resubmit_failed(sweep["id"])
        assert (again["origin"], again["jobs"]) == (sweep["id"], 1)
        client.sweeps.cancel(sweep)
        assert client.sweeps.wait(sweep)["counts"]["cancelled"] == 2

    def test_subscribes_to_messages(self, scene: SdkScene) -> None:
        wanted = {"tenant": "aa", "channel": "ntfy", "address": "https://ntfy.example.org/x"}
        made = scene.client.notifications.add(**wanted)  # type: ignore[arg-type]  # as above
        assert scene.client.notifications.test(made)["state"] == "active"
        assert Message.objects.get().kind == "test"
        Subscription.objects.update(state="paused")
        with pytest.raises(RequestConflictError, match="is paused"):
            scene.client.notifications.test(made)
        assert [row["id"] for row in scene.client.notifications.list()] == [made["id"]]
        scene.client.notifications.remove(made)
        with pytest.raises(MissingError):
            scene.client.notifications.test(made)

    def test_raises_errors_by_class(self, scene: SdkScene, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(InvalidRequestError, match="gpus: ") as refused:
            scene.submit(gpus=0, weight=0)
        assert refused.value.reason_code == "invalid_spec"
        assert set(refused.value.fields) == {"gpus", "weight"}
        with pytest.raises(MissingError):
            scene.client.jobs.get("00000000-0000-4000-8000-000000000000")
        with pytest.raises(UnauthenticatedError):
            Client(token="es_wrong").pools.list()
        with pytest.raises(UsageError):
            Client("ftp://x")
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(ImportError, match=r"pip install 'evenshare\[sdk\]'"):
            scene.client.jobs.to_pandas()

    @pytest.mark.parametrize("source", EXAMPLES)
    def test_documented_examples_run(self, scene: SdkScene, source: str) -> None:
        source = source.replace('"local"', repr(scene.stage.pool))
        exec(compile(source, "docs/sdk.md", "exec"), {})  # noqa: S102 - our own document
        assert {path for _, path in scene.wire.seen} & {"/api/v1/jobs", "/api/v1/sweeps"}


def test_types_match_description() -> None:
    """Run `make fields` after a change of an answer."""
    written = (ROOT / "client/src/evenshare/sdk/answers.py").read_text()
    assert written == client_answers(document()["components"]["schemas"]), "run make fields"
