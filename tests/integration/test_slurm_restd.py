"""A real slurmrestd: what its jobs are, and what a pool makes of one that fails.

The whole contract runs by it in test_slurm_executor_contract.py.
"""

from __future__ import annotations

import io
import os
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
from scheduling.engine.executors import ExecutorError, Extension, Launch, ReportState, token_job
from scheduling.engine.executors.node_source import EngineNodeState
from scheduling.engine.executors.slurm import restd_http
from scheduling.engine.executors.slurm.commands import (
    NodeGroup,
    Slurm,
    Submission,
    SubmissionRefusedError,
    is_over,
)
from scheduling.engine.executors.slurm.nodes import read_nodes
from scheduling.engine.executors.slurm.options import RestdOptions, SlurmOptions
from scheduling.engine.executors.slurm.restd import RestdSlurm, connect
from scheduling.engine.executors.slurm.restd_nodes import read_restd_nodes
from scheduling.models import Pool
from tests.integration.slurm_world import SlurmWorld, make_lab, slurm_world
from tests.integration.test_slurm_executor import CANARIES, RANKS
from tests.slurm_restd import RealRestd, own_restd
from tests.tools import eventually

# A comment that is no UTF-8, with what a JSON text would have to quote.
ODD = os.fsdecode(b'\xff "\\ \x01')


@pytest.fixture
def world(tmp_path: Path, slurm_restd: RealRestd) -> Iterator[SlurmWorld]:
    with slurm_world(tmp_path / "jobs", slurm_restd.cluster, slurm_restd.options) as made:
        yield made


@pytest.fixture
def slurm(slurm_restd: RealRestd) -> Iterator[RestdSlurm]:
    """The cluster by slurmrestd; its jobs are ended afterwards."""
    made = connect(options_of(slurm_restd))
    assert isinstance(made, RestdSlurm)
    yield made
    slurm_restd.cluster.run("scancel", f"--partition={slurm_restd.cluster.partition}")
    eventually(lambda: not slurm_restd.cluster.run("squeue", "--noheader"))


def options_of(restd: RealRestd) -> SlurmOptions:
    cluster = restd.cluster
    own = {"conf": str(cluster.conf), "partition": cluster.partition}
    return msgspec.convert({**own, **restd.options}, SlurmOptions)


def submission(token: str, *groups: NodeGroup, run: str = "sleep 600") -> Submission:
    name = f"evenshare-{token.split('-')[1]}"
    argv = ("/bin/sh", "-c", run)
    wanted = groups or (NodeGroup(("node-2",), "gpu:a100:1", 0, 0),)
    return Submission(token, name, argv, "", "/", "/dev/null", wanted, 45)


@pytest.mark.usefixtures("committed_db")
class TestALaunch:
    @pytest.mark.parametrize("gpus", [(2, 2), (3, 1)])
    def test_of_a_gang_is_on_its_nodes_with_their_gpus(
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

    def test_has_nothing_of_the_portals_environment(
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

    def test_that_slurm_refuses_ends_and_says_why(self, world: SlurmWorld) -> None:
        Pool.objects.update(
            executor_options={**world.lab.pool.executor_options, "gres_types": {"a100": "none"}}
        )
        token = world.lease("/bin/true")
        world.launch(token)
        assert world.ended(token).state is ReportState.STOPPED
        assert "Slurm does not run this: Requested node configuration" in world.log(token)

    def test_whose_answer_is_lost_happens_once(
        self, tmp_path: Path, slurm_restd: RealRestd
    ) -> None:
        with loses_answers(slurm_restd.socket) as (path, lost):
            options = {"restd": {**slurm_restd.options["restd"], "url": f"unix:{path}"}}
            with slurm_world(tmp_path / "jobs", slurm_restd.cluster, options) as world:
                token = world.lease("/bin/sh", "-c", "echo started; sleep 6000")
                before = jobs_named(world, token)  # Of other tests, whose databases are gone.
                wanted = [Launch(token, token_job(token), world.now_us())]
                with pytest.raises(ExecutorError, match="closed connection"):
                    world.executor.launch(wanted)
                lost.set()
                world.launch(token)
                world.says(token, "started")
                assert world.log(token).count("started") == 1
                assert len(jobs_named(world, token)) == len(before) + 1

    def test_needs_no_tool_from_its_start_to_its_end(
        self, world: SlurmWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as bare:
            bare.setattr(Slurm, "_run", no_tool)
            token = world.shell("trap 'exit 99' USR1; echo ready; while :; do sleep 0.1; done")
            world.says(token, "ready")
            until = world.now_us() + 7200 * SECOND_US
            world.executor.extend(world.lab.pool.pk, [Extension(token, token_job(token), until)])
            assert len(world.executor.nodes(world.lab.pool.pk)) == len(world.slurm.nodes)
            world.stop(token)
            assert world.ended(token).state is ReportState.STOPPED
            with pytest.raises(ExecutorError, match="no tool: scontrol"):
                world.executor.drain(world.lab.pool.pk, {"node-1": "disk"})
        limit = world.tools.queue()[token].limit_minutes
        assert limit > 120

    def test_goes_by_slurmrestd_alone_where_the_tools_do_the_rest(
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
    """A socket that passes requests on, and no answer to a submission until the event is set."""
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


class TestTheQueue:
    def test_is_what_squeue_says(self, slurm: RestdSlurm, slurm_restd: RealRestd) -> None:
        tools = Slurm(slurm.options)
        whole = NodeGroup(("node-1",), "gpu:a100:4", 0, 0)
        uneven = (NodeGroup(("node-3",), "gpu:v100:3", 0, 0), NodeGroup(("node-4",), "", 1, 0))
        done = slurm.submit(
            [
                submission("es-11-1", whole),
                submission("es-12-1", whole),  # It has to wait.
                submission("es-13-1", *uneven),
                submission("es-14-1", run="true"),
                submission("es-15-1", run="false"),
                submission("es-16-1"),
            ]
        )
        ids = {token: answer for token, answer in done.items() if isinstance(answer, int)}
        assert len(ids) == 6
        slurm.cancel([ids["es-16-1"]])
        wrap = ("--wrap=true", "--output=/dev/null")
        slurm_restd.cluster.run("sbatch", *wrap, f"--comment={ODD}", "--job-name=evenshare-17")
        slurm_restd.cluster.run("sbatch", *wrap, "--comment=es-18-1", "--job-name=mine")
        wanted = {
            "es-11-1": "RUNNING", "es-12-1": "PENDING", "es-13-1": "RUNNING",
            "es-14-1": "COMPLETED", "es-15-1": "FAILED", "es-16-1": "CANCELLED",
        }  # fmt: skip

        def settled() -> bool:
            queue = {token: job for token, job in tools.queue().items() if token in wanted}
            return {token: job.state for token, job in queue.items()} == wanted

        eventually(settled)
        queue = slurm.queue()
        told = tools.queue()
        assert set(queue) == set(told)
        # When a job that waits will start is an estimate, made anew from time to time.
        same = set(wanted) - {"es-12-1"}
        assert {token: queue[token] for token in same} == {token: told[token] for token in same}
        assert queue["es-12-1"].state == "PENDING"
        assert {token: queue[token].job_id for token in ids} == ids
        assert queue["es-11-1"].limit_minutes == 45

    def test_comes_by_tcp(self, tmp_path: Path) -> None:
        with own_restd(tmp_path / "slurm", tcp=True) as restd:
            slurm = connect(options_of(restd))
            assert restd.url.startswith("http://127.0.0.1:")
            ((token, job_id),) = slurm.submit([submission("es-1-1")]).items()
            assert slurm.queue()[token].job_id == job_id


class TestTheNodes:
    def test_are_what_sinfo_says(self, slurm: RestdSlurm, slurm_restd: RealRestd) -> None:
        run = slurm_restd.cluster.run
        for node, state, reason in (
            ("node-1", "DRAIN", "evenshare: disk"),
            ("node-2", "DRAIN", 'a "hole", by whom?'),
            ("node-3", "DOWN", "away"),
            ("node-4", "FAIL", "soon"),
        ):
            run("scontrol", "update", f"NodeName={node}", f"State={state}", f"Reason={reason}")
        when = ("StartTime=now", "Duration=60", "Users=root", "Flags=MAINT,IGNORE_JOBS")
        run("scontrol", "create", "reservation", "ReservationName=works", *when, "Nodes=node-5")
        tools = Slurm(slurm.options)
        try:
            eventually(lambda: read_nodes(tools)[4].state is EngineNodeState.DRAINED)
            nodes = read_restd_nodes(slurm)
            assert nodes == read_nodes(tools)
            assert [node.state.name for node in nodes] == [
                "UP",
                "DRAINED",
                "DOWN",
                *["DRAINED"] * 2,
            ]
            assert [node.drained_here for node in nodes] == [True, *[False] * 4]
        finally:
            run("scontrol", "delete", "ReservationName=works")
            for node in slurm_restd.cluster.nodes[:4]:
                run("scontrol", "update", f"NodeName={node.name}", "State=RESUME")
        eventually(lambda: read_restd_nodes(slurm) == read_nodes(tools))

    def test_that_do_not_answer_are_down(self, tmp_path: Path) -> None:
        with own_restd(tmp_path / "slurm", slurmd_timeout_s=4) as restd:
            slurm = connect(options_of(restd))
            assert isinstance(slurm, RestdSlurm)
            restd.cluster.kill_node("node-5")
            eventually(lambda: read_restd_nodes(slurm)[4].state is EngineNodeState.DOWN)
            eventually(lambda: read_restd_nodes(slurm) == read_nodes(Slurm(slurm.options)))

    def test_of_a_partition_that_is_not_there_are_an_error(self, slurm: RestdSlurm) -> None:
        options = msgspec.structs.replace(slurm.options, partition="nowhere")
        with pytest.raises(ExecutorError, match="the partition nowhere is not there"):
            read_restd_nodes(RestdSlurm(options, slurm.client))


class TestAJob:
    def test_is_on_the_nodes_that_were_named(self, slurm: RestdSlurm) -> None:
        answers = slurm.submit([submission("es-21-1"), submission("es-22-1")])
        eventually(lambda: {slurm.queue()[token].state for token in answers} == {"RUNNING"})
        for job_id in answers.values():
            nodes = slurm.ask("squeue", "--noheader", f"--jobs={job_id}", "--format=%N")
            assert nodes.strip() == "node-2"  # Not the first of those that are free.

    def test_that_cannot_be_is_refused_in_slurms_words(self, slurm: RestdSlurm) -> None:
        nowhere = submission("es-23-1", NodeGroup(("node-99",), "gpu:a100:1", 0, 0))
        too_much = submission("es-24-1", NodeGroup(("node-1",), "gpu:a100:9", 0, 0))
        fine = submission("es-25-1")
        first, second, third = slurm.submit([nowhere, too_much, fine]).values()
        assert isinstance(first, SubmissionRefusedError)
        assert str(first) == "Invalid node name specified"
        assert str(second) == "Requested node configuration is not available"
        assert isinstance(third, int)

    def test_that_waits_for_a_node_that_is_drained_is_taken(
        self, slurm: RestdSlurm, slurm_restd: RealRestd
    ) -> None:
        update = ("scontrol", "update", "NodeName=node-2")
        slurm_restd.cluster.run(*update, "State=DRAIN", "Reason=test")
        try:
            (answer,) = slurm.submit([submission("es-26-1")]).values()
            assert isinstance(answer, int)
        finally:
            slurm_restd.cluster.run(*update, "State=RESUME")

    def test_is_prolonged_and_cancelled_also_when_it_has_ended(self, slurm: RestdSlurm) -> None:
        (job_id,) = slurm.submit([submission("es-27-1")]).values()
        assert isinstance(job_id, int)
        eventually(lambda: slurm.queue()["es-27-1"].state == "RUNNING")
        slurm.limit({job_id: 90, 999_999: 90})
        assert slurm.queue()["es-27-1"].limit_minutes == 90
        slurm.cancel([job_id, 999_999])
        eventually(lambda: is_over(slurm.queue()["es-27-1"].state))
        slurm.limit({job_id: 120})
        slurm.cancel([job_id])

    def test_of_another_user_than_the_portals_does_not_stay(
        self, slurm: RestdSlurm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(restd_http, "_own_name", lambda: "root")
        with monkeypatch.context() as other:
            other.setattr(os, "geteuid", lambda: 4711)
            with pytest.raises(ExecutorError, match="submits jobs as the user 0, the portal is"):
                slurm.submit([submission("es-28-1"), submission("es-29-1")])
        eventually(lambda: is_over(slurm.queue()["es-28-1"].state))
        assert "es-29-1" not in slurm.queue()


class TestASlurmrestd:
    def test_that_is_away_or_hangs_is_an_error_and_nothing_is_lost(
        self, slurm: RestdSlurm, slurm_restd: RealRestd, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (job_id,) = slurm.submit([submission("es-31-1")]).values()
        slurm_restd.stop()
        with pytest.raises(ExecutorError, match="refused"):
            slurm.queue()
        with pytest.raises(ExecutorError, match="refused"):
            slurm.submit([submission("es-32-1")])
        slurm_restd.start()
        monkeypatch.setattr(restd_http, "CALL_S", 0.5)
        slurm_restd.freeze()
        with pytest.raises(ExecutorError, match=r"did not answer within 0\.5 s"):
            slurm.queue()
        slurm_restd.thaw()
        monkeypatch.undo()
        assert slurm.queue()["es-31-1"].job_id == job_id

    def test_whose_controller_is_away_is_an_error(
        self, slurm: RestdSlurm, slurm_restd: RealRestd, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(restd_http, "CALL_S", 0.5)
        slurm_restd.cluster.kill_controller()
        try:
            for call in (slurm.queue, lambda: slurm.submit([submission("es-33-1")])):
                with pytest.raises(ExecutorError, match="slurmrestd at unix:"):
                    call()
        finally:
            slurm_restd.cluster.start_controller()

    def test_is_obeyed_with_the_newest_token(
        self, slurm: RestdSlurm, slurm_restd: RealRestd
    ) -> None:
        good = slurm_restd.token_file.read_text()
        try:
            head, _, signature = good.strip().rpartition(".")
            slurm_restd.token_file.write_text(f"{head}.{signature[::-1]}")
            with pytest.raises(ExecutorError, match="slurmrestd at unix:"):
                slurm.queue()
            slurm_restd.write_token("username=daemon", "lifespan=600")
            with pytest.raises(ExecutorError, match="is for the user 'daemon'"):
                slurm.queue()
        finally:
            slurm_restd.token_file.write_text(good)
        slurm.queue()

    def test_of_another_user_is_not_asked_without_a_token(self, slurm_restd: RealRestd) -> None:
        """rest_auth/local would take root for its own user, who is nobody."""
        slurm_restd.stop()
        slurm_restd.authentication = "rest_auth/local"
        try:
            slurm_restd.start()
            plain = msgspec.structs.replace(
                options_of(slurm_restd), restd=RestdOptions(url=slurm_restd.url)
            )
            with pytest.raises(ExecutorError, match="it runs as the user 65534"):
                connect(plain).submit([submission("es-41-1")])
            assert "es-41-1" not in slurm_restd.cluster.run("squeue", "--format=%k")
        finally:
            slurm_restd.stop()
            slurm_restd.authentication = "rest_auth/jwt"
            slurm_restd.start()

    def test_signals_every_process_which_is_why_no_signal_is_sent(
        self, slurm: RestdSlurm, tmp_path: Path
    ) -> None:
        """Where this fails, slurmrestd has learned it: `RestdSlurm.cancel` could send signals."""
        said, child = tmp_path / "said", tmp_path / "child"
        child.write_text(
            f"trap 'echo child >> {said}' TERM; echo up >> {said}; while :; do sleep 0.1; done"
        )
        run = f"trap : TERM; /bin/sh {child} & while :; do sleep 0.1; done"
        (job_id,) = slurm.submit([submission("es-42-1", run=run)]).values()
        eventually(lambda: said.exists() and "up" in said.read_text())
        slurm.client.ask(restd_http.RestdAnswer, "DELETE", f"job/{job_id}?signal=TERM")
        eventually(lambda: "child" in said.read_text())


@pytest.mark.usefixtures("committed_db")
class TestTheCheck:
    def test_says_that_it_answers_and_as_whom(self, slurm_restd: RealRestd, tmp_path: Path) -> None:
        pool = make_lab(slurm_restd.cluster, slurm_restd.options).pool
        with override_settings(LOCAL_ROOT=str(tmp_path)):
            text, status = check(pool.name, "--run", "--node", "node-5")
        for line in (
            "ok       slurmrestd: acts as root, by a token",
            "ok       slurmrestd, version: slurm 22.05.8",
            "ok       trial on node-5: reads and writes the folder of jobs",
            "ok       trial, time limit: was prolonged",
            "warning  slurmrestd, token: it is for root: whoever reads it can act as any user",
        ):
            assert line in text
        assert "ok       slurmrestd: lists " in text
        assert status == 0

    def test_says_what_is_wrong_with_it(self, slurm_restd: RealRestd) -> None:
        pool = make_lab(slurm_restd.cluster, slurm_restd.options).pool
        good = slurm_restd.token_file.read_text()
        try:
            slurm_restd.write_token("lifespan=600")
            slurm_restd.token_file.chmod(0o644)
            text, status = check(pool.name)
            assert "warning  slurmrestd, token: it ends in 0.2 h" in text
            assert "warning  slurmrestd, token: others can read" in text
            slurm_restd.token_file.write_text("nothing")
            text, status = check(pool.name)
            assert "error    slurmrestd: what is in " in text
            assert status == 1
        finally:
            slurm_restd.token_file.write_text(good)
            slurm_restd.token_file.chmod(0o600)
        slurm_restd.stop()
        try:
            text, status = check(pool.name)
        finally:
            slurm_restd.start()
        assert "Connection refused: is it started, and with `-s openapi/v0.0.38`?" in text
        assert status == 1


def check(*arguments: str) -> tuple[str, int]:
    """What it says, and its exit status."""
    out = io.StringIO()
    try:
        call_command("check_slurm", *arguments, stdout=out)
    except SystemExit as stop:
        return out.getvalue(), int(stop.code or 0)
    return out.getvalue(), 0
