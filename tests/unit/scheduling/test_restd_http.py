"""Test the client of slurmrestd against a server whose answers are wrong in every way."""

from __future__ import annotations

import os
import pwd
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.slurm import restd_http
from scheduling.engine.executors.slurm.options import RestdOptions, read_options
from scheduling.engine.executors.slurm.restd import RestdJobs
from scheduling.engine.executors.slurm.restd_http import RestdClient, RestdRefusedError
from tests.restd_server import (
    Behaviour,
    FakeRestd,
    answer,
    drips,
    fake_restd,
    is_silent,
    raw,
    says,
    token_for,
)

OWN = pwd.getpwuid(os.geteuid()).pw_name
TOKEN = token_for(OWN)
JOB = {
    "job_id": 7, "user_id": os.geteuid(), "job_state": "RUNNING", "start_time": 5, "end_time": 9,
    "partition": "gpu", "name": "evenshare-1", "comment": "es-1-1", "time_limit": 30,
    "het_job_id": 0, "het_job_offset": 0,
}  # fmt: skip
GOOD = {"meta": {}, "errors": [], "jobs": [JOB]}
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
WRONG: dict[str, tuple[Behaviour, str]] = {
    "goes away": (lambda _: None, "closed connection"),
    "is silent": (is_silent, "did not answer within"),
    "drips its head": (drips(HEAD + b"X-Long: "), "did not answer within"),
    "drips many headers": (drips(HEAD, b"X: y\r\n"), "did not answer within|headers"),
    "drips its body": (drips(HEAD + b"Content-Length: 100000\r\n\r\n"), "did not answer within"),
    "drips chunks": (drips(CHUNKED, b"1\r\nx\r\n"), "did not answer within"),
    "rejects the token": (answer("Authentication failure", "401 Unauthorized"), "401"),
    "has no such version": (answer("Unable find requested URL", "404 Not Found"), "status 404"),
    "fails in HTML": (answer("<html>oh</html>", "502 Bad Gateway"), "status 502"),
    "says good day in HTML": (answer("<html>hi</html>"), "malformed"),
    "says nothing": (answer(""), "truncated"),
    "is no JSON of slurmrestd": (says({"ok": True}), "missing required field"),
    "is a list": (says([GOOD]), "Expected `object`"),
    "has no jobs": (says({"errors": []}), "missing required field `jobs`"),
    "has malformed jobs": (says({"errors": [], "jobs": [7]}), r"\$.jobs\[0\]"),
    "has a text for a number": (
        says({"errors": [], "jobs": [{**JOB, "job_id": "7"}]}), "Expected `int`, got `str`"
    ),
    "ends too early": (answer('{"errors": []', length=100), "is incomplete"),
    "ends within a chunk": (raw(CHUNKED + b"ff\r\n{"), "IncompleteRead"),
    "is too long": (answer("{", length=2**40), "too long"),
    "is longer than it says": (drips(CHUNKED, b"100000\r\n" + b" " * 2**20 + b"\r\n"), "too long"),
    "nests": (answer('{"meta":' + "[" * 10**5), "recursion|truncated"),
    "redirects": (answer("", "302 Found", "Location: http://127.0.0.1:1/"), "status 302"),
    "speaks no HTTP": (raw(b"\x00\xff SSH-2.0\r\n\r\n"), "SSH"),
    "says an error": (
        says({"errors": [{"error": "Invalid user id", "error_number": 2010}]}, "500 No"),
        "Invalid user id",
    ),
    "says an error with a good status": (
        says({**GOOD, "errors": [{"description": "half of it", "error": None}]}), "half of it"
    ),
    "says an error without words": (says({**GOOD, "errors": [{}]}), "without a text"),
}  # fmt: skip


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    return path


@pytest.fixture
def client(token_file: Path) -> Iterator[tuple[RestdClient, FakeRestd]]:
    with fake_restd(says(GOOD)) as server:
        yield RestdClient(RestdOptions(url=server.url, token_file=str(token_file))), server


def ask(client: RestdClient) -> RestdJobs:
    return client.ask(RestdJobs, "GET", "jobs")


class TestAnswer:
    def test_is_parsed_after_request_with_user_and_token(
        self, client: tuple[RestdClient, FakeRestd]
    ) -> None:
        asked, server = client
        (job,) = ask(asked).jobs
        assert (job.job_id, job.comment, job.time_limit) == (7, "es-1-1", 30)
        (request,) = server.requests
        assert request.startswith("GET /slurm/v0.0.38/jobs HTTP/1.1\r\n")
        assert f"X-SLURM-USER-NAME: {OWN}\r\n" in request
        assert f"X-SLURM-USER-TOKEN: {TOKEN}\r\n" in request

    @pytest.mark.parametrize(
        "head",
        [
            b"HTTP/1.1 200 OK\r\nConnection: close\r\n",
            b"HTTP/1.0 200 OK\r\n",
            b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: %d\r\n",
        ],
    )
    def test_is_read_until_connection_closes(
        self, client: tuple[RestdClient, FakeRestd], head: bytes
    ) -> None:
        asked, server = client
        body = msgspec.json.encode({**GOOD, "jobs": [JOB] * 2000})
        begin = head.replace(b"%d", str(len(body)).encode()) + b"\r\n"

        def behave(connection: socket.socket) -> None:
            connection.sendall(begin)
            half = len(body) // 2
            for part in (body[:half], body[half:]):
                time.sleep(0.05)  # the rest of the body has not been sent yet
                connection.sendall(part)

        server.behaviour = behave
        assert len(ask(asked).jobs) == 2000

    def test_invalid_utf8_is_replaced(self, client: tuple[RestdClient, FakeRestd]) -> None:
        asked, server = client
        text = msgspec.json.encode({**GOOD, "jobs": [JOB, {**JOB, "comment": "BYTE"}]})
        server.behaviour = answer(text.replace(b"BYTE", b"\xff"))
        assert [job.comment for job in ask(asked).jobs] == ["es-1-1", "�"]

    @pytest.mark.parametrize("fault", WRONG)
    def test_invalid_answer_raises_without_token(
        self,
        client: tuple[RestdClient, FakeRestd],
        fault: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        asked, server = client
        server.behaviour, says_so = WRONG[fault]
        monkeypatch.setattr(restd_http, "CALL_S", 0.3)
        monkeypatch.setattr(restd_http, "MOST_BYTES", 2**20)
        with pytest.raises(ExecutorError, match=says_so) as caught:
            ask(asked)
        assert TOKEN not in str(caught.getrepr(style="long", showlocals=False))
        # The request is not repeated or sent anywhere else.
        assert len(server.requests) == 1

    def test_error_contains_slurm_codes(self, client: tuple[RestdClient, FakeRestd]) -> None:
        asked, server = client
        faults = [
            {"error": "Failure", "error_code": 9001},
            {"error": "Unknown\nkey", "description": "in  it", "error_number": 2014},
        ]
        server.behaviour = says({"errors": faults}, "400 Bad Request")
        with pytest.raises(RestdRefusedError, match="Failure") as caught:
            ask(asked)
        assert (caught.value.status, set(caught.value.codes)) == (400, {9001, 2014})
        assert caught.value.faults[1].text == "in it: Unknown key"

    def test_missing_server_raises(self, tmp_path: Path, token_file: Path) -> None:
        nowhere = RestdOptions(url=f"unix:{tmp_path}/none", token_file=str(token_file))
        with pytest.raises(ExecutorError, match="No such file"):
            ask(RestdClient(nowhere))
        with fake_restd(is_silent) as server:
            url = server.url
        with pytest.raises(ExecutorError, match="refused"):
            ask(RestdClient(RestdOptions(url=url, token_file=str(token_file))))

    def test_socket_of_same_user_needs_no_token(self, tmp_path: Path) -> None:
        with fake_restd(says(GOOD), tmp_path / "socket") as server:
            assert len(ask(RestdClient(RestdOptions(url=server.url))).jobs) == 1
        assert "TOKEN" not in server.requests[0].upper()

    def test_socket_of_other_user_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = os.geteuid()
        with fake_restd(says(GOOD), tmp_path / "socket") as server:
            monkeypatch.setattr(os, "geteuid", lambda: own + 1)
            with pytest.raises(ExecutorError, match=f"runs as the user {own}, the portal as"):
                ask(RestdClient(RestdOptions(url=server.url)))
        # The server received no request.
        assert server.requests in ([], [""])


class TestToken:
    def test_is_reread_after_replacement(
        self, client: tuple[RestdClient, FakeRestd], token_file: Path
    ) -> None:
        asked, server = client
        ask(asked)
        fresh = token_for(OWN, 7200)
        # `scontrol token` prints this format.
        token_file.write_text(f"SLURM_JWT={fresh}\n")
        ask(asked)
        assert [fresh in request for request in server.requests] == [False, True]
        assert TOKEN in server.requests[0]

    @pytest.mark.parametrize(
        ("text", "says_so"),
        [
            (token_for("somebody"), "is for the user 'somebody', the portal runs as"),
            (token_for(OWN, -5), "has expired: write a new token"),
            ("", "contains no token"),
            ("secret", "contains no token"),
            ("secret.secret.secret", "contains no token"),
            (f"{TOKEN}\r\nX-SLURM-USER-NAME: root", "contains no token"),
            (token_for(OWN, sun=7), "contains no token"),
            (token_for(OWN, exp=None), "contains no token"),
            ("sécret", r"cannot be read \(UnicodeDecodeError\)"),
        ],
        # Tokens contain the time, but the tests' names must be equal in all processes.
        ids=[
            "other user",
            "expired",
            "empty",
            "one word",
            "not a token",
            "extra header",
            "without user",
            "without expiry",
            "not ASCII",
        ],
    )
    def test_invalid_token_is_not_sent_and_error_names_file(
        self, client: tuple[RestdClient, FakeRestd], token_file: Path, text: str, says_so: str
    ) -> None:
        asked, server = client
        token_file.write_text(text)
        with pytest.raises(ExecutorError, match=says_so) as caught:
            ask(asked)
        assert str(token_file) in str(caught.value)
        assert "secret" not in str(caught.value)
        assert server.requests == []

    def test_missing_file_raises(
        self, client: tuple[RestdClient, FakeRestd], token_file: Path
    ) -> None:
        token_file.unlink()
        with pytest.raises(ExecutorError, match=r"token cannot be read \(FileNotFoundError\)"):
            ask(client[0])

    def test_overlong_token_is_rejected(
        self, client: tuple[RestdClient, FakeRestd], token_file: Path
    ) -> None:
        token_file.write_text(token_for(OWN, more="x" * restd_http.MOST_TOKEN_BYTES))
        with pytest.raises(ExecutorError, match="contains no token"):
            ask(client[0])


class TestRestdOption:
    @pytest.mark.parametrize(
        "restd",
        [
            {"url": "unix:/run/slurmrestd.sock"},
            {"url": "http://127.0.0.1:6820", "token_file": "/etc/token"},
            {"url": "http://localhost:6820/", "token_file": "/etc/token", "version": "v0.0.38"},
            {"url": "http://[::1]:6820", "token_file": "/etc/token"},
        ],
    )
    def test_accepts_local_sockets_and_ports(self, restd: dict[str, str]) -> None:
        assert read_options({"partition": "gpu", "restd": restd}, "p").restd is not None

    @pytest.mark.parametrize(
        ("restd", "says_so"),
        [
            ({}, "missing required field `url`"),
            ({"url": "https://127.0.0.1:6820", "token_file": "/t"}, r"\$\.restd\.url"),
            ({"url": "http://slurm.example.org:6820", "token_file": "/t"}, r"\$\.restd\.url"),
            ({"url": "http://127.0.0.1:6820@evil.example:80", "token_file": "/t"}, "url"),
            ({"url": "http://127.0.0.1:6820/slurm", "token_file": "/t"}, "url"),
            ({"url": "http://127.0.0.1", "token_file": "/t"}, "url"),
            ({"url": "unix:run/socket"}, "url"),
            ({"url": "unix:/" + "x" * 107}, "url"),
            ({"url": "http://127.0.0.1:6820"}, "`token_file` is needed with http"),
            ({"url": "http://127.0.0.1:70000", "token_file": "/t"}, "no port 70000"),
            ({"url": "unix:/s", "token_file": "t"}, "token_file"),
            ({"url": "unix:/s", "version": "v0.0.39"}, r"v0\.0\.39"),
            ({"url": "unix:/s", "token": "x"}, "unknown field `token`"),
        ],
    )
    def test_rejects_other_values_with_field_name(
        self, restd: dict[str, str], says_so: str
    ) -> None:
        with pytest.raises(ExecutorError, match=says_so) as caught:
            read_options({"partition": "gpu", "restd": restd}, "physics")
        assert "executor_options of the pool physics" in str(caught.value)
