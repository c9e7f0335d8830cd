"""Test a pool on a real slurmrestd; test_slurm_executor_contract.py tests the contract."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from django.core.management import call_command
from django.test import override_settings

from evenshare_core.units import SECOND_US
from scheduling.engine.executors.base import (
    ExecutorError,
    Extension,
    Launch,
    ReportState,
    token_job,
)
from scheduling.engine.executors.slurm.commands import Slurm
from scheduling.models import Pool
from tests.integration.slurm_world import SlurmWorld, make_lab, slurm_world
from tests.integration.test_slurm_executor import CANARIES, RANKS
from tests.slurm_restd import RealRestd

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def world(tmp_path: Path, slurm_restd: RealRestd) -> Iterator[SlurmWorld]:
    with slurm_world(tmp_path / "jobs", slurm_restd.cluster, slurm_restd.options) as made:
        yield made


class TestLaunch:
    @pytest.mark.parametrize("gpus", [(2, 2), (3, 1)])
    def test_gang_runs_on_its_nodes_with_their_gpus(
        self, world: SlurmWorld, gpus: tuple[int, int]
    ) -> None:
        token = world.shell(RANKS, gpus=gpus)
        assert world.ended(token).state is ReportState.FINISHED
        lines = [line for line in world.log(token).splitlines() if line.startswith("rank ")]
        numbers = [",".join(map(str, range(count))) for count in gpus]
        every = ",".join(map(str, gpus))
        assert sorted(lines) == [
            f"rank {rank} of 2 has {numbers[rank]} with {every}" for rank in range(2)
        ]

    def test_passes_nothing_of_portal_environment(
        self, world: SlurmWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, text in CANARIES.items():
            monkeypatch.setenv(name, text)
        token = world.shell("echo ready; sleep 6000")
        world.says(token, "ready")
        job = world.queued(token)
        assert job is not None
        shim = (world.folder(token) / "shim.json").read_text()
        pid = str(msgspec.json.decode(shim)["pid"])
        environment = Path(f"/proc/{pid}/environ").read_text()
        assert "SLURM_JOB_ID=" in environment
        assert not [text for text in CANARIES.values() if text in environment]
        shown = world.slurm.run("scontrol", "show", "job", str(job.job_id))
        for word in ("Requeue=0", "ReqNodeList=node-", f"Comment={token}", "StdOut=/dev/null"):
            assert word in shown

    def test_job_refused_by_slurm_ends_with_reason(self, world: SlurmWorld) -> None:
        Pool.objects.update(
            executor_options={**world.lab.pool.executor_options, "gres_types": {"a100": "none"}}
        )
        token = world.lease("/bin/true")
        world.launch(token)
        assert world.ended(token).state is ReportState.STOPPED
        assert "Slurm does not run this job: Requested node configuration" in world.log(token)

    def test_lost_answer_starts_job_once(self, tmp_path: Path, slurm_restd: RealRestd) -> None:
        with loses_answers(slurm_restd.socket) as (path, lost):
            options = {"restd": {**slurm_restd.options["restd"], "url": f"unix:{path}"}}
            with slurm_world(tmp_path / "jobs", slurm_restd.cluster, options) as world:
                token = world.lease("/bin/sh", "-c", "echo started; sleep 6000")
                before = jobs_named(world, token)  # These jobs belong to other tests.
                wanted = [Launch(token, token_job(token), world.now_us())]
                with pytest.raises(ExecutorError, match="closed connection"):
                    world.executor.launch(wanted)
                lost.set()
                world.launch(token)
                world.says(token, "started")
                assert world.log(token).count("started") == 1
                assert len(jobs_named(world, token)) == len(before) + 1

    def test_needs_no_slurm_tool(self, world: SlurmWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as bare:
            bare.setattr(Slurm, "_run", no_tool)
            token = world.shell("trap 'exit 99' USR1; echo ready; while :; do sleep 0.1; done")
            world.says(token, "ready")
            until = world.now_us() + 7200 * SECOND_US
            world.executor.extend(world.lab.pool.pk, [Extension(token, token_job(token), until)])
            assert len(world.executor.nodes(world.lab.pool.pk)) == len(world.slurm.nodes)
            # Only running jobs count: other tests had jobs with the same token.
            cluster = world.executor._cluster(world.lab.pool.pk)
            assert cluster.queue()[token].limit_minutes > 120
            world.stop(token)
            assert world.ended(token).state is ReportState.STOPPED
            with pytest.raises(ExecutorError, match="no tool: scontrol"):
                world.executor.drain(world.lab.pool.pk, {"node-1": "disk"})

    def test_only_submits_option_uses_tools_for_other_calls(
        self, tmp_path: Path, slurm_restd: RealRestd
    ) -> None:
        options = {"restd": {**slurm_restd.options["restd"], "only_submits": True}}
        with slurm_world(tmp_path / "jobs", slurm_restd.cluster, options) as world:
            token = world.shell("trap 'exit 99' USR1; echo ready; while :; do sleep 0.1; done")
            world.says(token, "ready")
            slurm_restd.stop()
            try:
                other = world.lease("/bin/true")
                with pytest.raises(ExecutorError, match="slurmrestd at unix"):
                    world.launch(other)
                world.stop(token)
                assert world.ended(token).state is ReportState.STOPPED
                assert len(world.executor.nodes(world.lab.pool.pk)) == len(world.slurm.nodes)
            finally:
                slurm_restd.start()
            world.launch(other)
            assert world.ended(other).state is ReportState.FINISHED


def no_tool(_slurm: Slurm, tool: str, *_arguments: str) -> None:
    raise ExecutorError(f"no tool: {tool}")


@contextmanager
def loses_answers(behind: Path) -> Iterator[tuple[Path, threading.Event]]:
    """Yield a forwarding socket that drops answers to submissions until the event is set."""
    path, lost = behind.with_name("loses"), threading.Event()

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client, socket.socket(socket.AF_UNIX) as server:
                server.connect(str(behind))
                request = client.recv(65536)
                while b"\r\n\r\n" not in request or (
                    b"POST" in request and not request.endswith(b"}")
                ):
                    request += client.recv(65536)
                server.sendall(request)
                answer = b"".join(iter(lambda: server.recv(65536), b""))
                if b"job/submit" not in request or lost.is_set():
                    client.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(8)
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield path, lost
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            path.unlink()


def jobs_named(world: SlurmWorld, token: str) -> list[str]:
    table = world.slurm.run("squeue", "--noheader", "--states=all", "--format=%i %k")
    return [line for line in table.splitlines() if line.split()[-1:] == [token]]


class TestCheck:
    def test_reports_version_and_user_of_slurmrestd(
        self, slurm_restd: RealRestd, tmp_path: Path
    ) -> None:
        pool = make_lab(slurm_restd.cluster, slurm_restd.options).pool
        with override_settings(LOCAL_ROOT=str(tmp_path)):
            text, status = check(pool.name, "--run", "--node", "node-5")
        for line in (
            "ok       slurmrestd: acts as root, by a token",
            "ok       slurmrestd, version: slurm 22.05.8",
            "ok       trial on node-5: reads and writes the folder of jobs",
            "ok       trial, time limit: was prolonged",
            "warning  slurmrestd, token: it is for root: its readers can act as any user",
        ):
            assert line in text
        assert "ok       slurmrestd: lists " in text
        assert status == 0

    def test_reports_missing_right_to_extend_jobs(
        self, slurm_restd: RealRestd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With `only_submits`, the tools extend jobs. They do not report a missing right."""
        restd = {**slurm_restd.options["restd"], "only_submits": True}
        pool = make_lab(slurm_restd.cluster, {"restd": restd}).pool
        ask = Slurm.ask

        def denied(slurm: Slurm, tool: str, *arguments: str) -> str:
            if arguments[:1] == ("update",):
                raise ExecutorError("Access/permission denied")
            return ask(slurm, tool, *arguments)

        monkeypatch.setattr(Slurm, "ask", denied)
        with override_settings(LOCAL_ROOT=str(tmp_path)):
            text, status = check(pool.name, "--run")
        assert "error    trial, time limit: Access/permission denied: make this user" in text
        assert status == 1

    def test_reports_errors_of_token_and_connection(self, slurm_restd: RealRestd) -> None:
        pool = make_lab(slurm_restd.cluster, slurm_restd.options).pool
        good = slurm_restd.token_file.read_text()
        try:
            slurm_restd.write_token("lifespan=600")
            slurm_restd.token_file.chmod(0o644)
            text, status = check(pool.name)
            assert "warning  slurmrestd, token: it ends in 0.2 h" in text
            assert "warning  slurmrestd, token: other users can read" in text
            slurm_restd.token_file.write_text("nothing")
            text, status = check(pool.name)
            assert "error    slurmrestd, token: " in text
            assert " contains no token of `scontrol token`" in text
            assert status == 1
        finally:
            slurm_restd.token_file.write_text(good)
            slurm_restd.token_file.chmod(0o600)
        slurm_restd.stop()
        try:
            text, status = check(pool.name)
        finally:
            slurm_restd.start()
        assert "Connection refused: is it running, and with `-s openapi/v0.0.38`?" in text
        assert status == 1


def check(*arguments: str) -> tuple[str, int]:
    """Run `check_slurm`; return its output and its exit status."""
    out = io.StringIO()
    try:
        call_command("check_slurm", *arguments, stdout=out)
    except SystemExit as stop:
        return out.getvalue(), int(stop.code or 0)
    return out.getvalue(), 0
