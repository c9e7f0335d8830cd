"""Test jobs run by slurmrestd: the requests, and how answers are interpreted.

A test with the real slurmrestd is in tests/integration/test_slurm_restd.py.
"""

from __future__ import annotations

import errno
import json
import os
import pwd
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.slurm.commands import (
    UNLIMITED,
    NodeGroup,
    Slurm,
    SlurmJob,
    SlurmSilentError,
    Submission,
    SubmissionRefusedError,
)
from scheduling.engine.executors.slurm.options import RestdOptions, SlurmOptions
from scheduling.engine.executors.slurm.restd import (
    RestdSlurm,
    RestdSubmitter,
    connect,
    submission_body,
)
from scheduling.engine.executors.slurm.restd_http import RestdRefusedError
from tests.restd_server import FakeRestd, fake_restd, is_silent, says, token_for
from tests.slurm import as_made

UID = os.geteuid()
ONE = NodeGroup(("node-1", "node-2"), "gpu:a100:4", 8, 4096)
TWO = NodeGroup(("node-3",), "gpu:a100:1", 0, 0)


def submission(lease: str = "es-1-1", *groups: NodeGroup, **fields: Any) -> Submission:
    made = {
        "name": "evenshare-1", "argv": ("/usr/bin/python3", "-c", "pass"), "script": "/job.sh",
        "folder": "/jobs/1", "output": "/dev/null", "minutes": 45, **fields,
    }  # fmt: skip
    return Submission(lease, groups=groups or (TWO,), **made)


def job(job_id: int, lease: str = "es-1-1", state: str = "RUNNING", **fields: Any) -> Any:
    return {
        "job_id": job_id, "user_id": UID, "job_state": state, "start_time": 100, "end_time": 900,
        "partition": "gpu", "name": "evenshare-" + lease.split("-")[1], "comment": lease,
        "time_limit": 30, "het_job_id": 0, "het_job_offset": 0, **fields,
    }  # fmt: skip


class Script:
    """Answers in slurmrestd's format by request; an unknown request is an error."""

    def __init__(self, server: FakeRestd, answers: dict[str, Any]) -> None:
        self.server, self.answers = server, answers
        server.behaviour = self

    def __call__(self, connection: socket.socket) -> None:
        method, path, _ = self.server.requests[-1].split(" ", 2)
        what = self.answers[f"{method} {path.removeprefix('/slurm/v0.0.38/')}"]
        status, value = what if isinstance(what, tuple) else ("200 OK", what)
        says({"errors": [], **value}, status)(connection)

    @property
    def asked(self) -> list[str]:
        return [" ".join(one.split(" ", 2)[:2]) for one in self.server.requests]

    def body(self, number: int) -> Any:
        return json.loads(self.server.requests[number].partition("\r\n\r\n")[2])


def failure(code: int, text: str, status: str = "500 Internal Error") -> Any:
    return (status, {"errors": [{"error": text, "error_code": code}]})


@pytest.fixture
def made(tmp_path: Path) -> Iterator[tuple[Slurm, FakeRestd]]:
    token = tmp_path / "token"
    token.write_text(token_for(pwd.getpwuid(UID).pw_name))
    with fake_restd(is_silent) as server:
        restd = RestdOptions(url=server.url, token_file=str(token))
        yield connect(SlurmOptions(partition="gpu", restd=restd)), server


Made = tuple[Slurm, FakeRestd]


class TestSubmission:
    def test_sends_nodes_and_only_given_options(self) -> None:
        body = submission_body(SlurmOptions(partition="gpu"), submission())
        environment = body["job"].pop("environment")
        assert sorted(environment) == ["LANG", "PATH"]
        assert body == {
            "script": "#!/bin/sh\nexec /usr/bin/python3 -c pass\n",
            "job": {
                "partition": "gpu", "gres": "gpu:a100:1", "comment": "es-1-1",
                "name": "evenshare-1", "current_working_directory": "/jobs/1",
                "standard_output": "/dev/null", "open_mode": "append", "no_requeue": True,
                "nodelist": "node-3", "nodes": [1, 1], "tasks_per_node": 1, "time_limit": 45,
            },
        }  # fmt: skip

    def test_with_uneven_nodes_has_component_per_kind(self) -> None:
        options = SlurmOptions(partition="gpu", qos="high", reservation="ours")
        body = submission_body(options, submission("es-1-1", ONE, TWO, account="physics"))
        first, second = body["jobs"]
        wanted = {
            "nodelist": "node-1,node-2", "nodes": [2, 2], "gres": "gpu:a100:4",
            "cpus_per_task": 8, "memory_per_node": 4096,
        }  # fmt: skip
        assert {name: first[name] for name in wanted} == wanted
        assert second["nodelist"] == "node-3"
        assert not {"cpus_per_task", "memory_per_node"} & set(second)
        for one in (first, second):
            assert (one["account"], one["qos"], one["reservation"]) == ("physics", "high", "ours")
            assert (one["comment"], one["no_requeue"]) == ("es-1-1", True)

    def test_list_of_submission_fields_is_complete(self) -> None:
        """Add a new field to this list once `submission_body` sends it or options reject it."""
        assert {field.name for field in fields(Submission)} == {
            "token", "name", "argv", "script", "folder", "output", "groups", "minutes", "account",
            # `users` and `restd` exclude each other.
            "user",
        }  # fmt: skip
        assert {field.name for field in fields(NodeGroup)} == {
            "nodes", "gres", "cpus", "memory_mib",
        }  # fmt: skip

    def test_script_passes_arguments_unchanged(self, tmp_path: Path) -> None:
        argv = ("/usr/bin/printf", "%s|", "a b", "'\"$(id)`id`\\", "#SBATCH -N9", "x\ny", "*", "")
        body = submission_body(SlurmOptions(partition="gpu"), submission(argv=argv))
        script = tmp_path / "script"
        script.write_text(body["script"])
        done = subprocess.run(["/bin/sh", script], capture_output=True, text=True, check=True)
        assert done.stdout == "".join(f"{one}|" for one in argv[2:])

    def test_accepts_job_that_must_wait(self, made: Made) -> None:
        slurm, server = made
        remark = {"errors": [{"error": "Required node not available"}], "job_id": 7}
        script = Script(server, {"POST job/submit": remark, "GET job/7": {"jobs": [job(7)]}})
        assert slurm.submit(as_made(submission())) == {"es-1-1": 7}
        assert script.body(0)["job"]["comment"] == "es-1-1"

    def test_checks_user_of_first_job_before_others(self, made: Made) -> None:
        slurm, server = made
        answers = {"POST job/submit": {"job_id": 7}, "GET job/7": {"jobs": [job(7)]}}
        script = Script(server, answers)
        slurm.submit(as_made(submission("es-1-1"), submission("es-2-1"), submission("es-3-1")))
        posts = ["POST /slurm/v0.0.38/job/submit"]
        assert script.asked == [*posts, "GET /slurm/v0.0.38/job/7", *posts * 2]

    def test_cancels_job_of_other_user_and_stops(self, made: Made) -> None:
        slurm, server = made
        of_other = {"jobs": [job(7, user_id=UID + 1)]}
        replies = {"POST job/submit": {"job_id": 7}, "GET job/7": of_other, "DELETE job/7": {}}
        script = Script(server, replies)
        (answer,) = slurm.submit(as_made(submission("es-1-1"), submission("es-2-1"))).values()
        assert isinstance(answer, ExecutorError)
        assert f"as the user {UID + 1}, the portal is {UID}" in str(answer)
        assert [one.split()[0] for one in script.asked] == ["POST", "GET", "DELETE"]

    def test_refused_job_does_not_stop_others(self, made: Made) -> None:
        slurm, server = made
        Script(server, {"POST job/submit": failure(2014, "Requested node configuration is not")})
        answers = slurm.submit(as_made(submission("es-1-1"), submission("es-2-1")))
        assert [str(answer) for answer in answers.values()] == [
            "Requested node configuration is not"
        ] * 2
        assert all(isinstance(answer, SubmissionRefusedError) for answer in answers.values())

    @pytest.mark.parametrize(
        "answer",
        [
            failure(5005, "Zero Bytes were transmitted or received"),
            failure(1007, "Protocol authentication error"),
            failure(2093, "Burst Buffer resource limit exceeded"),
            failure(2015, "Required partition not available (inactive or drain)"),
            {"job_id": 0},
            {},
        ],
    )
    def test_temporary_failure_stops_batch(self, made: Made, answer: Any) -> None:
        slurm, server = made
        script = Script(server, {"POST job/submit": answer})
        (said,) = slurm.submit(as_made(submission("es-1-1"), submission("es-2-1"))).values()
        assert isinstance(said, ExecutorError)
        assert len(script.asked) == 1

    @pytest.mark.parametrize(
        "answer",
        [
            failure(9001, "Failure during parsing", "400 Bad Request"),
            failure(2000, "of a key that this version does not know", "400 Bad Request"),
        ],
    )
    def test_unreadable_request_does_not_stop_others(self, made: Made, answer: Any) -> None:
        slurm, server = made
        script = Script(server, {"POST job/submit": answer})
        answers = slurm.submit(
            as_made(submission("es-1-1"), submission("es-2-1"), submission("es-3-1"))
        )
        assert [isinstance(one, RestdRefusedError) for one in answers.values()] == [True] * 3
        assert len(script.asked) == 3

    def test_local_error_does_not_stop_others(self, made: Made) -> None:
        slurm, server = made
        Script(server, {"POST job/submit": {"job_id": 7}, "GET job/7": {"jobs": [job(7)]}})
        full = OSError(errno.ENOSPC, "No space left on device")

        def fail() -> Submission:
            raise full

        made_of = as_made(submission("es-2-1"), submission("es-3-1"))
        assert slurm.submit({"es-1-1": fail, **made_of}) == {
            "es-1-1": full,
            "es-2-1": 7,
            "es-3-1": 7,
        }

    def test_silent_server_stops_batch(self, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
        slurm, server = made
        monkeypatch.setattr("scheduling.engine.executors.slurm.restd_http.CALL_S", 0.3)
        (said,) = slurm.submit(as_made(submission("es-1-1"), submission("es-2-1"))).values()
        assert isinstance(said, SlurmSilentError)
        assert len(server.requests) == 1


class TestQueue:
    def test_contains_only_jobs_of_leases(self, made: Made) -> None:
        slurm, server = made
        jobs = [
            job(1, "es-1-1"),
            job(2, "es-2-1", "PENDING", start_time=0, end_time=0, time_limit=None),
            job(4, "es-3-1", "PENDING", het_job_id=3, het_job_offset=1),
            job(3, "es-3-1", het_job_id=3, het_job_offset=0),
            job(5, "es-5-1", user_id=UID + 1),
            job(6, "es-6-1", partition="other"),
            job(7, "es-7-1", name="mine"),
            job(8, "es-8-1", comment="told"),
            job(9, "es-9-1", comment=None, name=None, partition=None),
        ]
        Script(server, {"GET jobs": {"jobs": jobs}})
        assert slurm.queue() == {
            "es-1-1": SlurmJob(1, "es-1-1", "RUNNING", 30, 100, 900),
            "es-2-1": SlurmJob(2, "es-2-1", "PENDING", UNLIMITED, None, None),
            "es-3-1": SlurmJob(3, "es-3-1", "RUNNING", 30, 100, 900),
        }

    @pytest.mark.parametrize(
        ("less", "more"),
        [
            ("CANCELLED", "PENDING"),
            ("PENDING", "RUNNING"),
            ("PENDING", "COMPLETING"),
            ("FAILED", "?"),
        ],
    )
    def test_prefers_running_job_of_duplicate_lease(self, made: Made, less: str, more: str) -> None:
        slurm, server = made
        for states in ((less, more), (more, less)):
            jobs = [job(number, state=state) for number, state in enumerate(states, 1)]
            Script(server, {"GET jobs": {"jobs": jobs}})
            assert slurm.queue()["es-1-1"].state == more


class TestCancelAndLimit:
    def test_are_sent_one_by_one_and_ignore_ended_jobs(self, made: Made) -> None:
        slurm, server = made
        ended = {2017: "Invalid job id", 2021: "completing", 2084: "has already finished"}
        answers = {f"DELETE job/{code}": failure(code, text) for code, text in ended.items()}
        script = Script(server, {**answers, "DELETE job/5": {}, "POST job/5": {}})
        slurm.cancel([*ended, 5, 5])
        assert len(script.asked) == 4
        slurm.limit({5: 90})
        assert script.body(-1) == {"time_limit": 90}

    def test_raise_after_trying_all_jobs(self, made: Made) -> None:
        slurm, server = made
        denied = failure(2002, "Access/permission denied")
        script = Script(server, {"DELETE job/1": denied, "DELETE job/2": {}})
        with pytest.raises(ExecutorError, match="denied"):
            slurm.cancel([1, 2])
        assert len(script.asked) == 2

    def test_do_not_send_sigterm(self, made: Made) -> None:
        slurm, server = made
        slurm.cancel([1, 2], signal="TERM")
        assert server.requests == []

    def test_share_one_call_timeout(self, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
        slurm, server = made

        def slow(connection: socket.socket) -> None:
            time.sleep(0.05)
            says({"errors": []})(connection)

        server.behaviour = slow
        monkeypatch.setattr("scheduling.engine.executors.slurm.restd.CALL_S", 0.3)
        with pytest.raises(ExecutorError, match="did not answer"):
            slurm.cancel(range(100))


class TestConnect:
    @pytest.mark.parametrize(
        ("restd", "kind"),
        [
            (None, Slurm),
            (RestdOptions(url="unix:/s"), RestdSlurm),
            (RestdOptions(url="unix:/s", only_submits=True), RestdSubmitter),
        ],
    )
    def test_selects_client_by_options(self, restd: RestdOptions | None, kind: type[Slurm]) -> None:
        assert type(connect(SlurmOptions(partition="gpu", restd=restd))) is kind
